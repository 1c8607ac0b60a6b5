"""How far a lease of this server may shrink for others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2
from rgpu_server.core.shares import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rgpu_common.clock import Clock
    from rgpu_server.core.lease import Lease

# A program that has just come has not allocated yet what it needs.
SETTLE_SECONDS = 30.0
# Memory in use is told in parts of what was asked for, so that not every allocation is news.
_PARTS = 16


class Yielding:
    """charged: the bytes that are charged to a lease."""

    def __init__(self, charged: Callable[[str], int], clock: Clock) -> None:
        self._charged = charged
        self._clock = clock
        # Lease -> since when it has a session.
        self._came: dict[str, float] = {}

    def look(self, leases: Iterable[Lease]) -> None:
        """Notes which leases have sessions."""
        now = self._clock.now()
        self._came = {lease.id: self._came.get(lease.id, now) for lease in leases if lease.slots}

    def elastic(self, lease: Lease) -> agent_pb2.Elastic | None:
        """Returns how far a lease may shrink now; None: it never does."""
        booked = lease.booked
        if booked is None or booked.whole:
            return None
        if booked.least_ppm < 0 and booked.least_bytes < 0 and not booked.unused:
            return None
        return agent_pb2.Elastic(
            least_ppm=booked.wanted_ppm if booked.least_ppm < 0 else booked.least_ppm,
            least_bytes=self._least_bytes(lease),
            wanted_ppm=booked.wanted_ppm,
            wanted_bytes=booked.wanted_bytes,
        )

    def change(self, lease: Lease, share_ppm: int, memory_bytes: int) -> Change | None:
        """Returns the change towards these sizes that the lease allows; None: it allows none."""
        elastic = self.elastic(lease)
        if elastic is None:
            return None
        share = min(max(share_ppm, elastic.least_ppm), elastic.wanted_ppm, PPM)
        memory = min(max(memory_bytes, elastic.least_bytes), elastic.wanted_bytes)
        return Change(memory_bytes=memory, share_request_ppm=share)

    def _least_bytes(self, lease: Lease) -> int:
        booked = lease.booked
        assert booked is not None, "only a booked lease is elastic"
        wanted = booked.wanted_bytes
        stated = wanted if booked.least_bytes < 0 else booked.least_bytes
        if booked.least_bytes < 0 and booked.unused and self._has_settled(lease):
            stated = 0
        step = max(wanted // _PARTS, 1)
        used = -(-self._charged(lease.id) // step) * step
        # A lease without memory would have the server's default.
        return min(max(stated, used, 1), wanted)

    def _has_settled(self, lease: Lease) -> bool:
        came = self._came.get(lease.id)
        return came is not None and self._clock.now() - came >= SETTLE_SECONDS
