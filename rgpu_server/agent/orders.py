"""Carries out what the manager orders: grants and revocations, on the server's own terms."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_common.clusters import (
    AGENT_ATTEMPT,
    MAX_NAME,
    MAX_REQUEST_CARDS,
    MAX_RESERVE_SECONDS,
    is_request_id,
    lease_key,
)
from rgpu_common.errors import UsageError
from rgpu_common.sharing import SharePolicy
from rgpu_common.texts import one_line
from rgpu_common.units import MAX_BYTES, PPM
from rgpu_common.v1 import agent_pb2
from rgpu_server.agent.attempts import Attempts
from rgpu_server.agent.yielding import Yielding
from rgpu_server.core.booked import Booked
from rgpu_server.core.model import Code, LeaseKey, LeaseState, Refusal, Wish
from rgpu_server.core.placement import find
from rgpu_server.identity.access_tokens import check_tenant
from rgpu_server.service.messages import policy_of

if TYPE_CHECKING:
    from rgpu_common.clock import Clock
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.node import Node
    from rgpu_server.service.control import Control

_MAX_LABEL = 63
_MAX_SENTENCE = 500
_GROUNDS = {
    Code.TENANT_LIMIT: agent_pb2.GROUND_TENANT,
    Code.BAD_REQUEST: agent_pb2.GROUND_FORBIDDEN,
    Code.NOT_ALLOWED: agent_pb2.GROUND_FORBIDDEN,
}


class Orders:
    """Each method decides at once, so that nobody sees a request with some of its leases only."""

    def __init__(
        self, control: Control, node: Node, clock: Clock, yielding: Yielding | None = None
    ) -> None:
        self._yielding = yielding or Yielding(lambda _: 0, clock)
        self._control = control
        self._node = node
        self._clock = clock
        self._attempts = Attempts()

    def grant(self, order: agent_pb2.GrantOrder, *, any_attempt: bool = False) -> Refusal | None:
        """Grants all leases of a request on this node, or none.

        The same order again changes nothing. any_attempt: nor does one for the same cards of
        another attempt. Returns why there is no lease, else None.
        """
        wrong = _wrong(order)
        if wrong:
            return Refusal(Code.BAD_REQUEST, wrong)
        if self._attempts.is_revoked(order.request_id, order.attempt):
            sentence = f"attempt {order.attempt} of request {order.request_id} was revoked"
            return Refusal(Code.LEASE_ENDED, sentence)
        held = self._held(order.request_id)
        if held:
            return _as_held(order, held, any_attempt=any_attempt)
        granted = []
        for place, ordinal in enumerate(order.ordinals, start=order.first_place):
            answer = self._grant_one(order, place, ordinal)
            if isinstance(answer, str):
                granted.append(answer)
                continue
            for lease in granted:
                self._control.revoke(lease)
            return answer
        return None

    def resize(self, order: agent_pb2.ResizeOrder) -> agent_pb2.ResizeAnswer:
        """Changes the size of a lease as far as it and its programs allow, and says how large it is
        now. An order that comes late or twice changes nothing.
        """
        answer = agent_pb2.ResizeAnswer(
            request_id=order.request_id,
            attempt=order.attempt,
            ordinal=order.ordinal,
            number=order.number,
        )
        found = [x for x in self._held(order.request_id) if x.device == order.ordinal]
        lease = found[0] if found else None
        if lease is None or lease.booked is None or lease.booked.attempt != order.attempt:
            return answer
        self._yielding.look(self._node.leases)
        change = self._yielding.change(lease, order.share_ppm, order.memory_bytes)
        if change is not None and order.number > lease.booked.number:
            lease.booked = replace(lease.booked, number=order.number)
            # What it had counts as used until its programs are known to use less.
            had = {0: lease.amount.memory_bytes}
            self._control.resize(lease.id, change, had, kill=False, by_operator=True)
            self._control.look()
        elastic = self._yielding.elastic(lease)
        answer.there = True
        answer.share_ppm = lease.amount.share_ppm
        answer.memory_bytes = lease.amount.memory_bytes
        answer.least_bytes = elastic.least_bytes if elastic is not None else answer.memory_bytes
        return answer

    def revoke(self, request: str, attempt: int, why: str = "", *, remember: bool = True) -> None:
        """Ends the leases of this attempt and of earlier ones. remember: refuses later grants of
        them as well.

        An attempt of a Kubernetes node's agent is not remembered, for it is later than all of a
        manager that may grant to the same claim again.
        """
        if remember and attempt < AGENT_ATTEMPT:
            self._attempts.revoke(request, attempt, self._clock.now())
        for lease in self._held(request):
            if lease.booked is not None and lease.booked.attempt <= attempt:
                self._control.revoke(lease.id, why[:_MAX_SENTENCE])

    def keep(self, request: str, ttl_seconds: float) -> bool:
        """Keeps the kept leases of a request alive; False if there are none."""
        kept = [lease for lease in self._held(request) if lease.kept]
        for lease in kept:
            self._control.keep_alive(lease.id, ttl_seconds)
        return bool(kept)

    def _knows(self, ordinal: int) -> bool:
        return any(device.ordinal == ordinal for device in self._node.devices)

    def abandon(self, request: str, attempt: int) -> None:
        """Ends the leases of this attempt for which no program has come."""
        for lease in self._held(request):
            if lease.awaited and lease.booked is not None and lease.booked.attempt == attempt:
                self._control.revoke(lease.id)

    def warn(self, order: agent_pb2.WarnOrder) -> None:
        """Tells the programs of an attempt something; they go on. Notes when its leases end."""
        ends_at = None
        if order.HasField("ends_seconds") and 0 <= order.ends_seconds <= MAX_RESERVE_SECONDS:
            ends_at = self._clock.now() + order.ends_seconds
        for lease in self._held(order.request_id):
            if lease.booked is not None and lease.booked.attempt == order.attempt:
                lease.announced_at = ends_at
                if order.sentence:
                    self._control.warn(lease.id, order.sentence[:_MAX_SENTENCE])

    def drain(self, order: agent_pb2.DrainOrder) -> None:
        """Has the server take nothing new, or take new leases again."""
        if not order.drain:
            self._control.undrain()
            return
        seconds = order.end_after_seconds if order.HasField("end_after_seconds") else None
        self._control.drain(seconds)

    def _held(self, request: str) -> list[Lease]:
        return [
            lease
            for lease in self._node.leases
            if lease.booked is not None
            and lease.booked.request == request
            and lease.state is LeaseState.ACTIVE
        ]

    def _grant_one(self, order: agent_pb2.GrantOrder, place: int, ordinal: int) -> str | Refusal:
        """Returns the id of the lease, or a refusal."""
        key = lease_key(order.request_id, place)
        # One whose sessions are still ending is refused below, with the advice to ask again.
        if self._node.leases.is_active(LeaseKey(order.tenant, key)):
            sentence = f"tenant {order.tenant!r} has another lease {key!r} on this server"
            return Refusal(Code.LEASE_EXISTS, sentence)
        wanted = find(self._node.devices, ordinal).memory_bytes if self._knows(ordinal) else 0
        answer = self._control.grant(
            order.tenant, key, _wish(order, ordinal), order.reserve_seconds or order.ttl_seconds,
            booked=_booked(order, wanted), name=one_line(order.name, MAX_NAME),
        )  # fmt: skip
        return answer if isinstance(answer, Refusal) else answer.lease


def ground_of(refusal: Refusal) -> agent_pb2.Ground.ValueType:
    """Returns what kind of refusal it is for a manager."""
    return _GROUNDS.get(refusal.code, agent_pb2.GROUND_UNSPECIFIED)


def _as_held(
    order: agent_pb2.GrantOrder, held: list[Lease], *, any_attempt: bool
) -> Refusal | None:
    attempts = {lease.booked.attempt for lease in held if lease.booked is not None}
    same = sorted(lease.device for lease in held) == sorted(order.ordinals)
    if same and (any_attempt or attempts == {order.attempt}):
        return None
    sentence = f"this server has leases of request {order.request_id} from another attempt"
    return Refusal(Code.LEASE_EXISTS, sentence)


def _wish(order: agent_pb2.GrantOrder, ordinal: int) -> Wish:
    quota = order.quota
    policy = policy_of(quota.policy)
    if not quota.share_request_ppm and policy in (None, SharePolicy.NONE):
        # Otherwise the server's default share would be added.
        policy = SharePolicy.BEST_EFFORT
    return Wish(
        ordinal,
        quota.memory_bytes,
        quota.share_request_ppm,
        quota.share_limit_ppm,
        quota.memory_ppm,
        policy,
        quota.priority if quota.HasField("priority") else None,
        quota.weight if quota.HasField("weight") else None,
    )


def _booked(order: agent_pb2.GrantOrder, card_bytes: int) -> Booked:
    words, quota = order.neighbours, order.quota
    return Booked(
        order.request_id,
        order.attempt,
        order.whole,
        words.affinity,
        words.anti_affinity,
        words.exclusion,
        reserved=order.reserve_seconds > 0,
        wanted_ppm=quota.share_request_ppm,
        wanted_bytes=quota.memory_bytes or quota.memory_ppm * card_bytes // PPM,
        least_ppm=order.least_ppm if order.HasField("least_ppm") else -1,
        least_bytes=order.least_bytes if order.HasField("least_bytes") else -1,
        unused=order.yields_unused,
        since=int(time.time()),
        cards=order.cards,
        kept=order.kept,
    )


def _wrong(order: agent_pb2.GrantOrder) -> str:
    """Returns what no manager of this release would order, else ""."""
    words = order.neighbours
    if not is_request_id(order.request_id) or not order.attempt:
        return "the order has no valid id and attempt"
    try:
        check_tenant(order.tenant)
    except UsageError as error:
        return str(error)
    cards = len(order.ordinals)
    if not cards or order.first_place + cards > MAX_REQUEST_CARDS:
        return f"the order names {cards} cards from place {order.first_place} on"
    if len(set(order.ordinals)) < len(order.ordinals):
        return "the order names a card twice"
    if order.kept and order.reserve_seconds:
        return "a lease is kept or reserved, and not both"
    if not 0 <= order.reserve_seconds <= MAX_RESERVE_SECONDS:  # nor a number that is none
        return f"a card is reserved for at most {MAX_RESERVE_SECONDS} s"
    if any(
        len(word) > _MAX_LABEL for word in (words.affinity, words.anti_affinity, words.exclusion)
    ):
        return f"a label has at most {_MAX_LABEL} characters"
    if order.quota.share_request_ppm > PPM or order.quota.share_limit_ppm > PPM:
        return "a share is at most the whole card"
    if order.least_ppm > order.quota.share_request_ppm or order.least_bytes > MAX_BYTES:
        return "a lease cannot have less than the least that it accepts"
    return ""
