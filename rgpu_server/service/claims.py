"""The connections of claims. A claim holds the lease of a run for as long as it is open."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from rgpu_common import release
from rgpu_common.wire.claim import Claim, Claimed, Place, encode_claimed, encode_place
from rgpu_common.wire.fields import WishKey
from rgpu_server.core import actions as do
from rgpu_server.core.events import ClaimLeft, ClaimRequested
from rgpu_server.core.placement import find
from rgpu_server.observe.audit import audit

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_common.wire.hello import Hello
    from rgpu_server.core.events import Event
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.model import Device, Refusal
    from rgpu_server.core.node import Node

_REMIND_SECONDS = 25.0
# Notices within about a minute that a client's machine is gone.
_KEEP_ALIVE = (
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 20),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
)


class ClaimDesk:
    """Holds the claims' connections. `feed` passes events to the node; `turn_away` refuses a client
    and closes its connection.
    """

    def __init__(
        self,
        feed: Callable[[Event], None],
        turn_away: Callable[[socket.socket, Refusal], None],
    ) -> None:
        self._feed = feed
        self._turn_away = turn_away
        self._connections: dict[int, socket.socket] = {}
        self._requests: dict[int, ClaimRequested] = {}
        self._reminders: dict[int, asyncio.TimerHandle] = {}

    def take(self, connection: socket.socket, request: ClaimRequested) -> None:
        """Takes over a connection whose HELLO claims a lease."""
        claim = request.claim
        self._connections[claim] = connection
        self._requests[claim] = request
        if connection.family != socket.AF_UNIX:
            for level, option, value in _KEEP_ALIVE:
                connection.setsockopt(level, option, value)
        asyncio.get_running_loop().add_reader(connection.fileno(), self._stirs, claim)
        self._feed(request)

    def granted(self, claim: int, lease: Lease, device: Device) -> None:
        """Tells the client which lease its claim got."""
        self._quiet(claim)
        claimed = Claimed(
            release=release(),
            lease_id=lease.id,
            key=lease.key.name,
            tenant=lease.key.tenant,
            device=device.ordinal,
            device_name=device.model or device.library,
            device_bytes=device.memory_bytes,
            memory_bytes=lease.quota.memory_bytes,
            share_request_ppm=lease.asked_share_ppm,
            share_limit_ppm=lease.quota.share_limit_ppm,
        )
        self._say(claim, encode_claimed(claimed))

    def tell_place(self, action: do.TellPlace) -> None:
        """Tells a waiting client its place in line, and repeats that regularly, because a proxy may
        close streams on which nothing is sent.
        """
        self._quiet(action.claim)
        place = Place(action.place, action.waiting, action.sentence)
        if self._say(action.claim, encode_place(place)):
            loop = asyncio.get_running_loop()
            again = loop.call_later(_REMIND_SECONDS, self.tell_place, action)
            self._reminders[action.claim] = again

    def _quiet(self, claim: int) -> None:
        reminder = self._reminders.pop(claim, None)
        if reminder is not None:
            reminder.cancel()

    def request(self, claim: int) -> ClaimRequested | None:
        """Returns what a claim asks for; None: its connection is gone."""
        return self._requests.get(claim)

    def refuse(self, claim: int, refusal: Refusal) -> None:
        """Answers a claim with REFUSED and closes its connection."""
        connection = self._drop(claim)
        if connection is not None:
            self._turn_away(connection, refusal)

    def close(self) -> None:
        """Closes all connections. A claimed lease is adopted by the next daemon, or ends with its
        sessions.
        """
        for claim in list(self._connections):
            connection = self._drop(claim)
            if connection is not None:
                connection.close()

    def _say(self, claim: int, frame: bytes) -> bool:
        connection = self._connections.get(claim)
        if connection is None:
            return False
        try:
            sent = connection.send(frame, socket.MSG_DONTWAIT)
        except OSError:
            sent = 0
        if sent != len(frame):  # the client does not read, or has gone
            self._gone(claim)
        return claim in self._connections

    def _stirs(self, claim: int) -> None:
        """Handles a readable connection: a client with a claim sends nothing, so it has left."""
        connection = self._connections.get(claim)
        if connection is None:
            return
        try:
            connection.recv(1)
        except BlockingIOError:
            return
        except OSError:
            pass
        self._gone(claim)

    def _gone(self, claim: int) -> None:
        connection = self._drop(claim)
        if connection is not None:
            connection.close()
            self._feed(ClaimLeft(claim))

    def _drop(self, claim: int) -> socket.socket | None:
        self._quiet(claim)
        self._requests.pop(claim, None)
        connection = self._connections.pop(claim, None)
        if connection is not None:
            asyncio.get_running_loop().remove_reader(connection.fileno())
        return connection


def claim_doers(node: Node, desk: ClaimDesk) -> dict[type[Any], Callable[[Any], None]]:
    """Returns, for each action about a claim, the function that carries it out."""

    def grant(action: do.GrantClaim) -> None:
        lease = node.leases.get(action.lease)
        assert lease is not None, "a claim that is granted has a lease"
        audit("claim_granted", lease=lease.id, tenant=lease.key.tenant, key=lease.key.name)
        desk.granted(action.claim, lease, find(node.devices, lease.device))

    def refuse(action: do.RefuseClaim) -> None:
        asked = desk.request(action.claim)
        audit(
            "claim_refused",
            tenant=None if asked is None else asked.tenant,
            key=None if asked is None else asked.key,
            sentence=action.refusal.sentence,
        )
        desk.refuse(action.claim, action.refusal)

    return {do.GrantClaim: grant, do.TellPlace: desk.tell_place, do.RefuseClaim: refuse}


def claim_of(hello: Hello) -> tuple[bool, bool, float]:
    """Returns (whether a HELLO claims a lease, whether for its run alone, seconds it waits)."""
    said = {wish.key: wish.value for wish in hello.wishes}
    flags = said.get(WishKey.CLAIM, 0)
    wait = said.get(WishKey.WAIT, 0) / 1000
    return bool(flags & Claim.WANTED), bool(flags & Claim.OWN), wait
