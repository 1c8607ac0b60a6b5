"""Claims: a run asks for its lease before its program starts, and holds it until the run ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.lease import Joined
from rgpu_server.core.line import WORTH_WAITING, Line, Waiter, for_who_waits
from rgpu_server.core.model import Code, LeaseKey, Refusal, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.leases import LeaseBook
    from rgpu_server.core.model import Policy
    from rgpu_server.core.outbox import Outbox
    from rgpu_server.core.serving import Serving
    from rgpu_server.core.standing import Standing

# After these nobody in line has more room than before.
_FREES_NOTHING = (on.WorkerReady, on.SessionOpened, on.KeepAliveRequested, on.PauseRequested)


class Claiming:
    """Brings claims from their request to their end.  Times are seconds of the caller's clock.

    line: the claims that wait.  handlers: one row per event type that is about a claim.
    """

    def __init__(
        self,
        policy: Policy,
        leases: LeaseBook,
        serving: Serving,
        standing: Standing,
        out: Outbox,
    ) -> None:
        self.line = Line(policy, leases.bars)
        self._policy = policy
        self._leases = leases
        self._serving = serving
        self._standing = standing
        self._out = out
        # Claims that wait for the programs in their lease to end, and until when.
        self._settling: dict[int, tuple[on.ClaimRequested, float]] = {}
        # Claim -> its tenant, and the lease that it holds.
        self._held: dict[int, tuple[str, str]] = {}
        self.handlers: dict[type[Any], Callable[[Any, float], None]] = {
            on.ClaimRequested: self._requested,
            on.ClaimLeft: self._left,
        }

    def next_wake(self) -> float | None:
        """Returns when time alone changes something here; None: never."""
        times = [self.line.next_deadline(), *(until for _, until in self._settling.values())]
        return min((t for t in times if t is not None), default=None)

    def settle(self, event: on.Event, now: float) -> None:
        """After an event: serves who waits, and says who has another place."""
        for claim, until in list(self._settling.values()):
            if until <= now or not self._leases.unsettled(_key(claim), claim.wish):
                del self._settling[claim.claim]
                self._open(claim, now)
        if not len(self.line):
            self._leases.bars.clear()
            return
        if not isinstance(event, _FREES_NOTHING):
            self._serve(now)
        for waiter in self.line.moved():
            place, among = waiter.place, self.line.behind(waiter)
            self._out.add(do.TellPlace(waiter.event.claim, place, among, waiter.why.sentence))

    def _serve(self, now: float) -> None:
        def try_one(event: on.ClaimRequested) -> Refusal | None:
            try:
                self._grant(event, now)
            except RefusedError as error:
                return error.refusal
            return None

        for waiter in [*self.line.serve(try_one, now), *self.line.late(now)]:
            self._out.add(do.RefuseClaim(waiter.event.claim, waiter.why))
        if not len(self.line):
            self._leases.bars.clear()

    def _requested(self, event: on.ClaimRequested, now: float) -> None:
        if self._leases.unsettled(_key(event), event.wish):
            self._settling[event.claim] = (event, now + self._policy.settle_seconds)
        else:
            self._open(event, now)

    def _open(self, event: on.ClaimRequested, now: float) -> None:
        try:
            self._grant(event, now)
        except RefusedError as error:
            self._wait(event, error.refusal, now)

    def _wait(self, event: on.ClaimRequested, why: Refusal, now: float) -> None:
        """Puts a claim in line that wants to wait, and may be granted some day."""
        try:
            if event.wait_seconds <= 0 or why.code not in WORTH_WAITING:
                raise RefusedError(why.code, why.sentence)
            devices = self._possible(event)
            until = now + min(event.wait_seconds, self._policy.max_wait_seconds)
            self.line.join(Waiter(event, devices, now, until, for_who_waits(why)))
        except RefusedError as error:
            self._out.add(do.RefuseClaim(event.claim, error.refusal))

    def _possible(self, event: on.ClaimRequested) -> frozenset[int]:
        """Where the claim could be granted some day; RefusedError: nowhere."""
        tenant = self._leases.quotas.policy_of(event.tenant)
        if tenant.sessions == 0:
            raise RefusedError(
                Code.TENANT_LIMIT,
                f"tenant {event.tenant!r} may have no session; ask the operator for some",
            )
        held = self._leases.of(_key(event))
        if held is not None:
            return frozenset((held.device,))
        return frozenset(self._leases.possible(_key(event), event.wish))

    def _grant(self, event: on.ClaimRequested, now: float) -> None:
        self._standing.check_running()
        key = _key(event)
        self._standing.check_not_draining()
        self._check_claims(event.tenant)
        self._serving.check_room(event.tenant, key)
        self._serving.check_pool(event.wish.device)
        lease, joined = self._leases.join(key, event.wish, now, event.address)
        self._out.add_changes(self._leases.lending)
        if joined is Joined.NEW:
            self._out.make_page(lease)
        elif joined is Joined.RESHAPED:
            self._out.update_page(lease)
        self._leases.hold(lease, event.claim)
        lease.own |= event.own and joined is Joined.NEW
        self._held[event.claim] = (event.tenant, lease.id)
        self._out.add(do.GrantClaim(event.claim, lease.id))

    def _check_claims(self, tenant: str) -> None:
        """Each held claim costs the server a connection: all may have so many, a tenant half."""
        most = 2 * self._policy.max_sessions
        own = sum(holder == tenant for holder, _ in self._held.values())
        if own >= most // 2 or len(self._held) >= most:
            who = f"of tenant {tenant!r} " if own >= most // 2 else ""
            raise RefusedError(
                # What a tenant has too much of keeps back nobody else who waits.
                Code.TENANT_LIMIT if who else Code.SERVER_FULL,
                f"{own if who else most} runs {who}hold leases of this server, as many as may; try "
                "again when one has ended",
            )

    def _left(self, event: on.ClaimLeft, now: float) -> None:
        self._settling.pop(event.claim, None)
        self.line.leave(event.claim)
        lease = self._leases.get(self._held.pop(event.claim, ("", ""))[1])
        if lease is not None and self._leases.let_go(lease, event.claim, now):
            self._out.add(do.DropPage(lease.id))


def _key(event: on.ClaimRequested) -> LeaseKey:
    return LeaseKey(event.tenant, event.key or f"container:{event.container}")
