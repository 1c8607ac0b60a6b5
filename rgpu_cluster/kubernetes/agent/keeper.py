"""Keeps the leases of a node as the claims of the cluster say. No I/O, no clock.

Who calls tells it what has changed, carries out its actions and tells it the outcome. At most one
action of a claim is under way at a time. Times are seconds of the monotonic clock; `wall` is
seconds since 1970.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.agent.actions import Action, Annotate, Grant, Key, Revoke, Say
from rgpu_cluster.kubernetes.agent.entry import Entry, belongs, is_settled
from rgpu_cluster.kubernetes.agent.orders import order_of
from rgpu_cluster.kubernetes.parameters import in_fields
from rgpu_common.clusters import lease_key
from rgpu_common.v1 import agent_pb2, orders_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.kubernetes.agent.views import ClaimView

log = logging.getLogger("rgpu.kubernetes")

# A lease that is kept alive ends so long after the last time.
TTL_SECONDS = 600.0
KEEP_SECONDS = TTL_SECONDS / 3
# How long new claims avoid a card whose server had no room.
FULL_SECONDS = 30.0
# A lease that somebody has ended is not granted again at once: they may free the claim as well.
_AGAIN_SECONDS = 60.0
_FAILED_SECONDS = 2.0
_REFUSED_SECONDS, _LONGEST_SECONDS = 5.0, 60.0
_MAX_SENTENCE = 500
_LOST = (
    "the lease of this claim has ended, and its programs get no GPU until rgpu has it again: the "
    "agent asks for it every minute. Delete the pods of the claim to place it elsewhere"
)
# The server takes 1 MiB in one message.
_MOST_KEEP_BYTES = 512 << 10


class Keeper:
    def __init__(self) -> None:
        # True once all claims are known; nothing is ended or granted before.
        self.synced = False
        self._entries: dict[str, Entry] = {}
        # Those that have a card or a lease here.
        self._hot: set[str] = set()
        # Those that have any device here.
        self._users: set[str] = set()
        self._keep_after = 0.0
        self._report: agent_pb2.NodeReport | None = None
        self._full: list[str] = []

    # What has happened.

    def claim(self, uid: str, view: ClaimView | None) -> bool:
        """Notes a claim as the API server has it now; None: it is gone. Returns whether the claim
        concerns this node, before or now.
        """
        concerns = self._concerns(uid)
        entry = self._entries.setdefault(uid, Entry())
        before, entry.view = entry.view, view
        if before is None or view is None or before.key != view.key:
            entry.annotated.clear()
        entry.annotated.intersection_update(entry.pods())
        if view is not None and view.devices:
            self._users.add(uid)
        else:
            self._users.discard(uid)
        self._sort(uid, entry)
        return concerns or self._concerns(uid)

    def report(self, report: agent_pb2.NodeReport, first: bool, now: float) -> None:
        """Notes what the server has. first: nothing is known of what it had a moment ago."""
        self._report = report
        held: dict[str, list[agent_pb2.HeldLease]] = {}
        for lease in report.leases:
            if lease.kept and lease.request_id and not _is_unit(lease.request_id):
                held.setdefault(lease.request_id, []).append(lease)
        for uid in held.keys() - self._entries.keys():
            self._entries[uid] = Entry()
        for uid in (*self._hot, *(held.keys() - self._hot)):
            self._reported(self._entries[uid], tuple(held.get(uid, ())), first, now)
        for uid in [*self._hot, *held]:
            self._sort(uid, self._entries[uid])

    def silent(self) -> None:
        """Notes that the server does not answer."""
        self._report = None

    # What is to be done.

    def actions(self, now: float, wall: float) -> list[Action]:
        """Returns what can be done now. Each action is answered by one of the methods below."""
        found: list[Action] = []
        if self._report is None or not self.synced:
            return found
        for uid in sorted(self._hot):
            entry = self._entries[uid]
            action = None if entry.busy else self._guarded(uid, entry, now, wall)
            if action is not None:
                entry.busy = True
                found.append(action)
        return found

    def _guarded(self, uid: str, entry: Entry, now: float, wall: float) -> Action | None:
        """Returns what a claim needs. A defect for one claim must not stop the others."""
        try:
            return self._next(uid, entry, now, wall)
        except Exception:
            log.exception("claim %s cannot be handled", uid)
            entry.quiet_until = now + _LONGEST_SECONDS
            return None

    def keeps(self, now: float) -> orders_pb2.KeepRequest | None:
        """Returns the leases to be kept alive now; None if there are none. `kept` answers."""
        if self._report is None or not self.synced or now < self._keep_after:
            return None
        due = [uid for uid in sorted(self._hot) if now >= self._keep_due(self._entries[uid])]
        if not due:
            return None
        request = orders_pb2.KeepRequest()
        for uid in due:
            entry = self._entries[uid]
            if request.ByteSize() > _MOST_KEEP_BYTES:
                break  # the others are still due
            entry.kept_at, entry.kept_pods = now, entry.pods()
            request.requests.add(request_id=uid, ttl_seconds=TTL_SECONDS, pods=entry.kept_pods)
        return request

    def next_due(self, now: float) -> float | None:
        """Returns when there will be something to do although nothing new has been said."""
        times = [self._keep_after]
        for uid in self._hot:
            entry = self._entries[uid]
            times += [entry.grant_after, entry.quiet_until, self._keep_due(entry)]
        return min((time for time in times if now < time < float("inf")), default=None)

    def used(self) -> frozenset[str]:
        """Returns the devices of this node that claims have."""
        views = (self._entries[uid].view for uid in self._users)
        return frozenset(device for view in views if view is not None for device in view.devices)

    def take_full(self) -> list[str]:
        """Returns the cards that had no room for a claim, once."""
        full, self._full = self._full, []
        return full

    def leased_view(self, uid: str) -> ClaimView | None:
        """Returns the claim if it has its lease here now."""
        entry = self._entries.get(uid)
        return entry.view if entry is not None and entry.is_leased else None

    def view(self, uid: str) -> ClaimView | None:
        """Returns the claim; None if there is none."""
        entry = self._entries.get(uid)
        return entry.view if entry is not None else None

    # What has come of it.

    def confirmed(self, action: Revoke, wall: float) -> bool:
        """Returns whether the action is still right, after a fresh look has been told."""
        entry = self._entries.get(action.uid)
        if entry is None:
            return False
        again = self._to_end(action.uid, entry, wall)
        return again is not None and again.leases == action.leases

    def granted(self, action: Grant, answer: agent_pb2.GrantAnswer, now: float) -> None:
        """Notes what the server answered."""
        entry = self._free(action)
        entry.attempt = action.order.attempt
        if answer.granted:
            entry.leased, entry.refused, entry.lost, entry.refusals = action.key, None, None, 0
            entry.reported, entry.kept_at, entry.grant_after = False, None, 0.0
            entry.granted = action.order.attempt
        else:
            self._refuse(entry, action.key, answer.sentence, answer.ground, now)

    def revoked(self, action: Revoke) -> None:
        """Notes that the server has ended the leases."""
        entry = self._free(action)
        entry.ended |= action.leases
        entry.attempt = max(entry.attempt, action.attempt)
        entry.leased = None

    def dropped(self, action: Revoke) -> None:
        """Notes that a fresh look at the claim has shown that its leases stay."""
        self._free(action)

    def annotated(self, action: Annotate) -> None:
        """Notes that the pods know their server, or never will."""
        self._free(action).annotated |= {pod.uid for pod in action.pods}

    def said(self, action: Say) -> None:
        """Notes that the claim says it. `claim` has told what it says now."""
        self._free(action)

    def failed(self, action: Action, now: float) -> None:
        """Notes that nothing came of an action; it is tried again a little later."""
        self._free(action).quiet_until = now + _FAILED_SECONDS

    def kept(self, unknown: Iterable[str], now: float) -> None:
        """Notes which leases the server did not have."""
        for uid in unknown:
            entry = self._entries.get(uid)
            if entry is not None and entry.is_leased:
                self._lost(entry, now + _AGAIN_SECONDS)

    def not_kept(self, request: orders_pb2.KeepRequest, now: float) -> None:
        """Notes that the server did not hear it."""
        self._keep_after = now + _FAILED_SECONDS
        for one in request.requests:
            entry = self._entries.get(one.request_id)
            if entry is not None:
                entry.kept_at = None

    def _free(self, action: Action) -> Entry:
        entry = self._entries.get(action.uid) or Entry()
        entry.busy = False
        self._sort(action.uid, entry)
        return entry

    # How it decides.

    def _next(self, uid: str, entry: Entry, now: float, wall: float) -> Action | None:
        if now < entry.quiet_until:
            return None
        ends = self._to_end(uid, entry, wall)
        if ends is not None:
            return ends
        view = entry.view
        if view is None or not view.shares:
            return None
        if not entry.is_leased and entry.living():
            # Whoever asked for it: `_to_end` has found nothing wrong with it.
            entry.leased, entry.refused, entry.kept_at = view.key, None, None
        if entry.is_leased:
            return self._to_tell(uid, entry, view)
        refused = entry.refused == view.key
        if entry.has_lost() and not view.told(names.LOST) and (refused or now < entry.grant_after):
            return _say(uid, view, names.LOST, _LOST)
        if refused and not view.told(names.REFUSED):
            return _say(uid, view, names.REFUSED, entry.sentence)
        if refused and entry.waits():
            return None  # kube-scheduler takes the allocation back
        return self._to_grant(uid, entry, view, now) if now >= entry.grant_after else None

    def _to_end(self, uid: str, entry: Entry, wall: float) -> Revoke | None:
        """Returns the order that ends leases which do not belong to the claim as it is."""
        held = entry.living()
        if not held:
            return None
        view, why = entry.view, ""
        if view is None:
            why = "its ResourceClaim is gone"
        elif not view.shares:
            if all(entry.owns(lease) or is_settled(lease, wall) for lease in held):
                why = "its ResourceClaim is not allocated on this server any more"
        elif entry.leased != view.key and not belongs(view, held):
            why = "its ResourceClaim has been allocated anew"
        if not why:
            return None
        namespace = view.namespace if view is not None else held[0].tenant
        name = view.name if view is not None else ""
        attempt = max(lease.attempt for lease in held)
        leases = frozenset(lease.lease_id for lease in held)
        return Revoke(uid, namespace, name, attempt, leases, why)

    def _to_tell(self, uid: str, entry: Entry, view: ClaimView) -> Action | None:
        """Returns what the API server has to know of a lease."""
        assert self._report is not None
        pods = tuple(pod for pod in view.pods if pod.uid not in entry.annotated)
        if view.waits and pods and view.cards == len(view.shares):
            device = ",".join(str(share.ordinal) for share in view.shares)
            lease = lease_key(uid, view.first)
            server = self._report.address
            return Annotate(uid, view.namespace, view.key, pods, server, lease, device)
        wrong = any({names.REFUSED, names.LOST} & share.told for share in view.shares)
        if wrong or (view.waits and not view.told(names.LEASED)):
            return _say(uid, view, names.LEASED)
        return None

    def _to_grant(self, uid: str, entry: Entry, view: ClaimView, now: float) -> Action | None:
        attempt = max(names.AGENT_ATTEMPT, entry.attempt + 1)
        try:
            return Grant(uid, view.key, order_of(view, attempt))
        except RequestError as error:
            self._refuse(entry, view.key, str(error), agent_pb2.GROUND_FORBIDDEN, now)
        if view.told(names.REFUSED):
            return None
        return _say(uid, view, names.REFUSED, entry.sentence)

    def _refuse(
        self, entry: Entry, key: Key, sentence: str, ground: agent_pb2.Ground.ValueType, now: float
    ) -> None:
        entry.refused, entry.sentence = key, in_fields(sentence)[:_MAX_SENTENCE]
        entry.refusals += 1
        waits = entry.waits()
        if waits and ground == agent_pb2.GROUND_UNSPECIFIED:
            self._full += [device for device, _ in key]
        if not waits:
            entry.grant_after = now + _LONGEST_SECONDS
        elif entry.refusals > 1 and ground != agent_pb2.GROUND_UNSPECIFIED:
            # kube-scheduler may choose the same card at once, for the same answer.
            pause = _REFUSED_SECONDS * 2 ** min(entry.refusals - 2, 8)
            entry.grant_after = now + min(pause, _LONGEST_SECONDS)

    def _reported(
        self, entry: Entry, held: tuple[agent_pb2.HeldLease, ...], first: bool, now: float
    ) -> None:
        before = {lease.lease_id for lease in entry.living()}
        entry.held = held
        entry.ended &= {lease.lease_id for lease in held}
        now_there = {lease.lease_id for lease in entry.living()}
        there = bool(now_there)
        if first or not now_there <= before:
            # A new lease ends soon unless it is kept alive, whoever asked for it.
            entry.kept_at = None
        if entry.is_leased and not there and (first or entry.reported):
            # A server that was away may have lost its leases, and then they are granted at once.
            self._lost(entry, now if first else now + _AGAIN_SECONDS)
        elif entry.is_leased and not there:
            # The report is older than the grant, or the lease has ended before a report told of it
            # after the grant's answer. The server says which, if it is to keep it alive now.
            entry.kept_at = None
        entry.reported = there

    def _lost(self, entry: Entry, again: float) -> None:
        entry.lost = entry.leased
        entry.leased, entry.reported, entry.kept_at = None, False, None
        entry.grant_after = max(entry.grant_after, again)

    def _keep_due(self, entry: Entry) -> float:
        if not entry.is_leased:
            return float("inf")
        if entry.kept_at is None or entry.kept_pods != entry.pods():
            return 0.0
        return entry.kept_at + KEEP_SECONDS

    def _concerns(self, uid: str) -> bool:
        return uid in self._hot or uid in self._users

    def _sort(self, uid: str, entry: Entry) -> None:
        """Puts an entry where it belongs, and forgets one of which nothing is left."""
        entry.note()
        if entry.here or entry.held:
            self._hot.add(uid)
            return
        self._hot.discard(uid)
        if entry.view is None and not entry.busy:
            self._entries.pop(uid, None)


def _say(uid: str, view: ClaimView, condition: str, sentence: str = "") -> Say:
    return Say(uid, view.namespace, view.name, view.key, condition, sentence)


def _is_unit(request: str) -> bool:
    """Returns whether a lease is of a container with units, which the device plugin keeps."""
    return request.startswith(names.UNIT_REQUEST)
