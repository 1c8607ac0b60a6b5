"""Claims: a run asks for its lease before its program starts, and holds it until the run ends."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.lease import Joined
from rgpu_server.core.line import WORTH_WAITING, Line, Waiter, for_who_waits
from rgpu_server.core.model import Code, LeaseKey, Refusal, RefusedError
from rgpu_server.core.shortage import UNTIL_A_LEASE_ENDS
from rgpu_server.core.waiting import Waiting, crowded_out

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.leases import LeaseBook
    from rgpu_server.core.model import Quota
    from rgpu_server.core.outbox import Outbox
    from rgpu_server.core.policy import Policy
    from rgpu_server.core.serving import Serving
    from rgpu_server.core.standing import Standing

# After these events the answer to every claim in line may be another one.
_FOR_ALL = (on.DrainRequested, on.UndrainRequested, on.StopRequested)
_WAIT_OPTION = ", or add --wait to wait in line"


class Claiming:
    """Handles claims from their request to their end. Times are seconds of the caller's clock.

    line: the claims in line. handlers: one row per event type that concerns a claim.
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
        self._most = 2 * policy.max_sessions if policy.max_claims is None else policy.max_claims
        self._leases = leases
        self._serving = serving
        self._standing = standing
        self._out = out
        # Counts the claims in line and the claims that settle.
        self._waiting = Waiting(policy)
        # Claims that wait until the programs in their lease have ended, each with its deadline.
        self._settling: dict[int, tuple[on.ClaimRequested, float]] = {}
        # Claim -> the lease that it holds: its key and its id.
        self._held: dict[int, tuple[LeaseKey, str]] = {}
        self._tenants = Counter[str]()
        # How often a claim has ended, and the value of `_changes` when the line was served last.
        self._ended = self._served_at = 0
        self.handlers: dict[type[Any], Callable[[Any, float], None]] = {
            on.ClaimRequested: self._requested,
            on.ClaimLeft: self._left,
            on.ClaimCancelled: self._cancelled,
        }

    def next_wake(self) -> float | None:
        """Returns the next time at which something changes without an event; None: never."""
        times = [self.line.next_deadline(), *(until for _, until in self._settling.values())]
        if self.line.wants_place:
            times.append(self._serving.kept.next_end())
        return min((t for t in times if t is not None), default=None)

    def settle(self, event: on.Event, now: float) -> None:
        """Serves the claims that wait after an event, and tells claims whose place has changed."""
        for claim, until in list(self._settling.values()):
            if until <= now or not self._leases.unsettled(_key(claim), claim.wish):
                self._settled(claim.claim)
                self._open(claim, now)
        if len(self.line):
            if self._changes != self._served_at or isinstance(event, _FOR_ALL):
                self._serve(now)
            for waiter in self.line.late(now):
                self._refuse(waiter)
            if self.line.due(now):
                self._serve(now)
        if not len(self.line):
            self.line.forget_bars()
        for waiter, among in self.line.moved():
            place = do.TellPlace(waiter.event.claim, waiter.place, among, waiter.why.sentence)
            self._out.add(place)

    @property
    def _changes(self) -> int:
        """Counts the events since the start that may have changed the answer to a claim in line."""
        return self._leases.changes + self._serving.changes + self._ended

    def _serve(self, now: float) -> None:
        def try_one(event: on.ClaimRequested) -> Refusal | None:
            try:
                self._grant(event, now)
            except RefusedError as error:
                return error.refusal
            self._waiting.go(event)
            return None

        for waiter in self.line.serve(try_one, now):
            self._refuse(waiter)
        self._served_at = self._changes

    def _refuse(self, waiter: Waiter) -> None:
        """Refuses a claim that has left the line."""
        self._waiting.go(waiter.event)
        self._out.add(do.RefuseClaim(waiter.event.claim, waiter.why))

    def _requested(self, event: on.ClaimRequested, now: float) -> None:
        if not self._leases.unsettled(_key(event), event.wish):
            self._open(event, now)
            return
        try:
            self._come(event)
        except RefusedError as error:
            self._out.add(do.RefuseClaim(event.claim, error.refusal))
            return
        self._settling[event.claim] = (event, now + self._policy.settle_seconds)

    def _come(self, event: on.ClaimRequested) -> None:
        """Counts a claim that waits from now on; RefusedError if it may not."""
        leaves = self._waiting.come(event)
        if leaves is not None:
            self._give_up(leaves.claim)
            self._out.add(do.RefuseClaim(leaves.claim, crowded_out(leaves)))

    def _give_up(self, claim: int) -> None:
        """Removes a claim from those that wait, if it is one of them."""
        self._settled(claim)
        waiter = self.line.leave(claim)
        if waiter is not None:
            self._waiting.go(waiter.event)

    def _settled(self, claim: int) -> None:
        """Removes the claim from those that settle, if it is one of them."""
        event, _ = self._settling.pop(claim, (None, 0.0))
        if event is not None:
            self._waiting.go(event)

    def _open(self, event: on.ClaimRequested, now: float) -> None:
        try:
            self._grant(event, now)
        except RefusedError as error:
            self._wait(event, error.refusal, now)

    def _wait(self, event: on.ClaimRequested, why: Refusal, now: float) -> None:
        """Puts a claim in line if it wants to wait and can be granted later; otherwise
        refuses it.
        """
        try:
            if why.code not in WORTH_WAITING:
                raise RefusedError(why.code, why.sentence)
            if event.wait_seconds <= 0:
                raise RefusedError(why.code, _with_wait(why.sentence))
            possible = self._possible(event)
            self._come(event)
        except RefusedError as error:
            self._out.add(do.RefuseClaim(event.claim, error.refusal))
            return
        until = now + min(event.wait_seconds, self._policy.max_wait_seconds)
        quota = possible[min(possible)]
        self.line.join(
            Waiter(event, frozenset(possible), quota, now, until, for_who_waits(why)), now
        )

    def _possible(self, event: on.ClaimRequested) -> dict[int, Quota]:
        """Returns the devices on which the claim could be granted later, each with the lease's
        ceilings.

        Raises:
            RefusedError: there is no such device.
        """
        tenant = self._leases.quotas.policy_of(event.tenant)
        if tenant.sessions == 0:
            raise RefusedError(
                Code.TENANT_LIMIT,
                f"tenant {event.tenant!r} may have no session; ask the operator for some",
            )
        held = self._leases.of(_key(event))
        if held is not None:
            return {held.device: held.quota}
        return self._leases.possible(_key(event), event.wish)

    def _grant(self, event: on.ClaimRequested, now: float) -> None:
        self._standing.check_running()
        key = _key(event)
        self._standing.check_not_draining()
        self._leases.check_new(key, operator=event.operator)
        self._leases.check_line(key, event.wish)
        self._check_claims(event.tenant)
        self._serving.check_room(event.tenant, key)
        self._serving.check_pool(event.wish.device)
        lease, joined = self._leases.join(
            key, event.wish, now, event.address, operator=event.operator, name=event.name
        )
        self._out.add_changes(self._leases.lending)
        if joined is Joined.NEW:
            self._out.make_page(lease)
        elif joined is Joined.RESHAPED:
            self._out.update_page(lease)
        self._leases.users.hold(lease, event.claim)
        lease.own |= event.own and joined is Joined.NEW
        if not lease.slots:
            self._serving.kept.keep(key, now)
        self._held[event.claim] = (key, lease.id)
        self._tenants[event.tenant] += 1
        self._out.add(do.GrantClaim(event.claim, lease.id))

    def _check_claims(self, tenant: str) -> None:
        """Refuses a claim if there are too many. Each held claim costs the server a connection, so
        there is a limit for all, and one tenant may have half of it.
        """
        own, most = self._tenants[tenant], self._most
        if own >= most // 2 or len(self._held) >= most:
            who = f"of tenant {tenant!r} " if own >= most // 2 else ""
            raise RefusedError(
                # A tenant's own limit does not stop claims of other tenants in the line.
                Code.TENANT_LIMIT if who else Code.SERVER_FULL,
                f"{own if who else most} runs {who}hold leases of this server, the most that are "
                "allowed; try again when one has ended",
            )

    def _left(self, event: on.ClaimLeft, now: float) -> None:
        self._give_up(event.claim)
        if event.claim in self._held:
            self._let_go(event.claim, now)

    def _cancelled(self, event: on.ClaimCancelled, now: float) -> None:
        waiter = self.line.leave(event.claim)
        if waiter is None:
            sentence = f"claim {event.claim} does not wait any more"
            self._out.add(do.Refuse(event.request, Refusal(Code.LEASE_UNKNOWN, sentence)))
            return
        waiter.why = Refusal(Code.LEASE_ENDED, event.why)
        self._refuse(waiter)
        self._out.add(do.Answer(event.request, ""))

    def _let_go(self, claim: int, now: float) -> None:
        key, lease_id = self._held.pop(claim)
        self._ended += 1
        self._tenants[key.tenant] -= 1
        if not self._tenants[key.tenant]:  # clients choose names, so unused ones are forgotten
            del self._tenants[key.tenant]
        lease = self._leases.get(lease_id)
        if lease is not None and self._leases.users.let_go(lease, claim, now):
            self._out.add(do.DropPage(lease.id))
        held = self._leases.of(key)
        if held is None or not held.holders:
            self._serving.kept.give_up(key)


def _key(event: on.ClaimRequested) -> LeaseKey:
    return LeaseKey.of_client(event.tenant, event.key, event.container)


def _with_wait(sentence: str) -> str:
    """Returns the refusal of a claim. Where it advises to wait, it names the option that waits."""
    return sentence + _WAIT_OPTION if sentence.endswith(UNTIL_A_LEASE_ENDS) else sentence
