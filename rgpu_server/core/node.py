"""The decisions of the whole server: one event in, the actions out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.claiming import Claiming
from rgpu_server.core.lease import why_ended
from rgpu_server.core.leases import LeaseBook
from rgpu_server.core.model import (
    Code,
    Device,
    LeaseKey,
    LeaseState,
    PageState,
    Refusal,
    RefusedError,
)
from rgpu_server.core.outbox import Outbox
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.serving import Serving
from rgpu_server.core.standing import Drain, Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rgpu_server.core.lease import Lease

MAX_DRAIN_SECONDS = 7 * 86400.0

# The form of a key that the node made. Tenants choose their keys, and may choose one of this form.
_GIVEN_KEY = re.compile("granted-([0-9]{1,15})")


class Node:
    """Leases, sessions and workers of one server.

    Read access (`leases`, `sessions`, `pools`, `settling`, `kept`, `line`, `standing`, `devices`)
    is for reports; only `handle` changes anything.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        policy: Policy | None = None,
        tenants: Mapping[str, TenantPolicy] | None = None,
        pools: Sequence[str] = (),
    ) -> None:
        """pools: those besides the devices' own, as `array_pool` names them."""
        self.devices = tuple(devices)
        self.policy = policy or Policy()
        self.tenants = dict(tenants or {})
        self.standing = Standing()
        self.leases = LeaseBook(self.devices, self.policy, self.tenants)
        self._out = Outbox(self.policy.reclaim_seconds)
        self._serving = Serving(
            self.devices, self.policy, self.leases, self.standing, self._out, pools
        )
        self.sessions = self._serving.sessions
        self.pools = self._serving.pools
        self.settling = self._serving.settling
        self.kept = self._serving.kept
        self._claiming = Claiming(self.policy, self.leases, self._serving, self.standing, self._out)
        self.line = self._claiming.line
        self._next_key = 1
        self._handlers = self._rows()

    def _rows(self) -> dict[type[Any], Callable[[Any, float], None]]:
        """Returns one row per event type: the method that handles it."""
        return {
            on.Started: self._nothing,
            on.Adopted: self._adopted,
            on.TimePassed: self._time_passed,
            on.StopRequested: self._stop_requested,
            on.LeaseRequested: self._lease_requested,
            on.KeepAliveRequested: self._keep_alive_requested,
            on.ResizeRequested: self._resize_requested,
            on.PauseRequested: self._pause_requested,
            on.RevokeRequested: self._revoke_requested,
            on.MemoryObserved: self._memory_observed,
            on.DrainRequested: self._drain_requested,
            on.UndrainRequested: self._undrain_requested,
            **self._serving.handlers,
            **self._claiming.handlers,
        }

    def handle(self, event: on.Event, now: float) -> list[do.Action]:
        """Returns what to do, in order, after `event` at time `now` (seconds, never going back)."""
        self._out.take()  # drop the actions of an earlier event whose handling failed
        self.kept.lapse(now)
        self._handlers[type(event)](event, now)
        self._serving.settle(now)
        self._claiming.settle(event, now)
        self.leases.lending.restore(now)
        self._out.add_changes(self.leases.lending)
        self._serving.refill(now)
        return self._out.take()

    def next_wake(self, now: float) -> float | None:
        """Returns when to hand in `TimePassed` (seconds, as `now`). None: only other events change
        anything.
        """
        drain = self.standing.drain
        times = [self.leases.next_end(), self._serving.next_wake(now), self._claiming.next_wake()]
        if drain is not None:
            times.append(drain.ends_at)
        return min((t for t in times if t is not None), default=None)

    # Leases

    def _lease_requested(self, event: on.LeaseRequested, now: float) -> None:
        def grant() -> do.Answer:
            self.standing.check_running()
            key = LeaseKey(event.tenant, event.key or self._fresh_key(event.tenant))
            if self.leases.of(key) is None:
                self.standing.check_not_draining()
            lease, new = self.leases.grant(
                key,
                event.wish,
                event.ttl_seconds,
                now,
                passes_line=event.passes_line,
                booked=event.booked,
                operator=event.operator,
                name=event.name,
            )
            self._out.add_changes(self.leases.lending)
            if new:
                self._out.make_page(lease)
            return do.Answer(event.request, lease.id)

        self._answer(event.request, grant)

    def _keep_alive_requested(self, event: on.KeepAliveRequested, now: float) -> None:
        def keep_alive() -> do.Answer:
            lease = self.leases.keep_alive(event.lease, now, event.ttl_seconds)
            return do.Answer(event.request, lease.id)

        self._answer(event.request, keep_alive)

    def _resize_requested(self, event: on.ResizeRequested, now: float) -> None:
        def resize() -> do.Answer:
            used = sum(event.used.values())
            lease = self.leases.resize(
                event.lease, event.change, used, now, operator=event.operator
            )
            self._out.add_changes(self.leases.lending)
            self._out.update_page(lease)
            ended = self._end_largest(lease, event.used, now) if event.kill else 0
            return do.Answer(event.request, lease.id, ended)

        self._answer(event.request, resize)

    def _end_largest(self, lease: Lease, used: Mapping[int, int], now: float) -> int:
        """Ends the largest sessions until the others fit into the lease; returns how many it
        ended.
        """
        over = sum(used.values()) - lease.quota.memory_bytes
        sentence = f"lease {lease.key} was made smaller than the memory that it held"
        ended = 0
        for session_id in sorted(used, key=lambda s: (-used[s], s)):
            session = self.sessions.get(session_id)
            if over <= 0:
                break
            if session is not None and session.lease == lease.id:
                self._serving.end(session, Refusal(Code.LEASE_ENDED, sentence), now)
                over, ended = over - used[session_id], ended + 1
        return ended

    def _pause_requested(self, event: on.PauseRequested, now: float) -> None:
        def pause() -> do.Answer:
            lease, changed = self.leases.pause(event.lease, event.paused, event.operator)
            self._out.update_page(lease)
            return do.Answer(event.request, lease.id, unchanged=not changed)

        self._answer(event.request, pause)

    def _memory_observed(self, event: on.MemoryObserved, now: float) -> None:
        self.leases.observe(event.used)

    def _revoke_requested(self, event: on.RevokeRequested, now: float) -> None:
        def revoke() -> do.Answer:
            lease, gone = self.leases.revoke(event.lease, now)
            sessions = len(lease.slots)
            self._lease_ended(lease, gone, now, event.why)
            return do.Answer(event.request, lease.id, sessions)

        self._answer(event.request, revoke)

    def _answer(self, request: int, decide: Callable[[], do.Answer]) -> None:
        try:
            self._out.add(decide())
        except RefusedError as error:
            self._out.add_changes(self.leases.lending)
            self._out.add(do.Refuse(request, error.refusal))

    def _lease_ended(self, lease: Lease, gone: bool, now: float, why: str = "") -> None:
        self.kept.give_up(lease.key)
        sentence = why_ended(lease) + (f": {why}" if why else "")
        if gone:
            self._out.add(do.DropPage(lease.id))
            return
        self._out.add(do.UpdatePage(lease.id, lease.quota, PageState.ENDED))
        for session_id in list(lease.slots.values()):
            session = self.sessions.get(session_id)
            if session is not None:
                self._serving.end(session, Refusal(Code.LEASE_ENDED, sentence), now)

    def _fresh_key(self, tenant: str) -> str:
        while True:
            key = f"granted-{self._next_key}"
            self._next_key += 1
            # A tenant may have chosen the same key.
            if self.leases.of(LeaseKey(tenant, key)) is None:
                return key

    # Time and the end

    def _nothing(self, event: on.Started, now: float) -> None:
        pass

    def _adopted(self, event: on.Adopted, now: float) -> None:
        """Takes over leases and sessions. Leases that an earlier daemon was ending are ended again,
        because their workers may not have got the message.
        """
        for lease in event.leases:
            self.leases.adopt(lease, now)
            given = _GIVEN_KEY.fullmatch(lease.key.name)
            if given is not None:
                self._next_key = max(self._next_key, int(given[1]) + 1)
        for session in event.sessions:
            self._serving.adopt(session)
        for lease in event.leases:
            if lease.state is not LeaseState.ACTIVE:
                self._lease_ended(lease, False, now)

    def _time_passed(self, event: on.TimePassed, now: float) -> None:
        for lease, gone in self.leases.expire(now):
            self._lease_ended(lease, gone, now)
        drain = self.standing.drain
        if drain is not None and drain.ends_at is not None and drain.ends_at <= now:
            self.standing.drain = Drain(None)
            for lease, gone in self.leases.end_all(now):
                self._lease_ended(lease, gone, now)
        self._serving.end_late(now)

    def _drain_requested(self, event: on.DrainRequested, now: float) -> None:
        def drain() -> do.Answer:
            seconds = event.end_after_seconds
            if seconds is not None and not 0 <= seconds <= MAX_DRAIN_SECONDS:
                raise RefusedError(
                    Code.BAD_REQUEST,
                    f"leases cannot end after {seconds:g} s: say 0 to {MAX_DRAIN_SECONDS:g} s",
                )
            before = self.standing.drain
            self.standing.drain = Drain(None if seconds is None else now + seconds)
            return do.Answer(event.request, "", unchanged=self.standing.drain == before)

        self._answer(event.request, drain)
        self._time_passed(on.TimePassed(), now)

    def _undrain_requested(self, event: on.UndrainRequested, now: float) -> None:
        unchanged = self.standing.drain is None
        self.standing.drain = None
        self._out.add(do.Answer(event.request, "", unchanged=unchanged))

    def _stop_requested(self, event: on.StopRequested, now: float) -> None:
        refusal = Refusal(Code.STOPPING, "the server was stopped by its operator")
        if not self.standing.stopping:
            self.standing.stopping = True
            self._serving.stop_idle()
        for session in self.sessions:
            if event.end_sessions or session.worker is None:
                self._serving.end(session, refusal, now)
