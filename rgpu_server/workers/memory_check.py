"""Tells which array sessions hold more memory than their lease has, whatever their workers claim.

An array worker charges its own session and sets its own ceiling (`arrays/ledger.py`,
`arrays/ceiling.py`). Both stand in the process that they bound: if an operation of a library ever
writes where it must not, they say what the program likes. The daemon therefore asks the system
how much memory each such process has, and compares that with the lease.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from rgpu_server.workers.groups import THREAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# What an honest worker may hold besides what it had when it was ready and its lease's memory: the
# 256 MiB of its ceiling, and as much for what it takes before it sets the ceiling.
ALLOWANCE_BYTES: Final = 512 << 20
# A library may hold scratch memory for a moment while other sessions have all of the lease.
_LOOKS_BEFORE_END: Final = 2
_KIB: Final = 1024


class Seat(Struct, frozen=True):
    """An array session with its worker. pool: the worker's, as `core.pool.array_pool` names it."""

    session: int
    lease: str
    pool: str
    pid: int


def held_bytes(pid: int) -> int | None:
    """Returns the memory of a process: private memory that it has mapped, and shared memory that
    it has touched (the emulated device's). None: there is no such process any more.
    """
    wanted = {"VmData:", "RssShmem:"}
    with contextlib.suppress(OSError, ValueError):
        rows = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
        found = [int(row[1]) * _KIB for row in rows if len(row) > 1 and row[0] in wanted]
        return sum(found) if found else None
    return None


class MemoryCheck:
    """Compares what processes hold with what leases have. Pure but for `read`.

    read: returns the bytes that a process holds, as `held_bytes`.
    """

    def __init__(self, read: Callable[[int], int | None] = held_bytes) -> None:
        self._read = read
        self._allowance = ALLOWANCE_BYTES + THREAD_BYTES * len(os.sched_getaffinity(0))
        # Pool -> what its workers held at most when they were ready.
        self._at_first: dict[str, int] = {}
        # Lease -> in how many looks in a row it was too much.
        self._over: dict[str, int] = {}

    def ready(self, pool: str, pid: int) -> None:
        """Notes what a worker holds before it serves anybody."""
        held = self._read(pid)
        if held is not None:
            self._at_first[pool] = max(self._at_first.get(pool, 0), held)

    def measure(self, seats: Iterable[Seat]) -> dict[Seat, int]:
        """Returns how many bytes each session's worker holds for the session. One whose pool is
        not known is left out: an earlier daemon started it, or its device is not emulated.
        """
        held = {}
        for seat in seats:
            now, first = self._read(seat.pid), self._at_first.get(seat.pool)
            if now is not None and first is not None:
                held[seat] = max(0, now - first - self._allowance)
        return held

    def too_much(
        self, held: Mapping[Seat, int], lease_bytes: Mapping[str, int]
    ) -> list[tuple[Seat, int]]:
        """Returns the largest session of each lease whose sessions held more than the lease has in
        this look and the one before, and what they hold.

        Args:
            held: as `measure` returns it.
            lease_bytes: what each lease has. One that is not named has ended.
        """
        sums: dict[str, int] = {}
        for seat, held_here in held.items():
            sums[seat.lease] = sums.get(seat.lease, 0) + held_here
        over = {
            lease: total for lease, total in sums.items() if total > lease_bytes.get(lease, total)
        }
        self._over = {lease: self._over.get(lease, 0) + 1 for lease in over}
        return [
            (max((s for s in held if s.lease == lease), key=lambda s: (held[s], -s.session)), total)
            for lease, total in over.items()
            if self._over[lease] >= _LOOKS_BEFORE_END
        ]
