"""Ends array sessions that hold more memory of the node than their lease has."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from rgpu_common.units import format_bytes
from rgpu_server.core import events as on
from rgpu_server.core.model import SessionState
from rgpu_server.core.pool import seam_of
from rgpu_server.observe.audit import audit
from rgpu_server.workers.memory_check import Seat

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.conductor import Conductor

log = logging.getLogger("rgpu.server")

_LOOK_SECONDS: Final = 1.0


class MemoryWatch:
    """Looks at the array sessions of a server once a second."""

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begins to look. In the event loop."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Stops looking."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            try:
                await self._look()
            except Exception:
                # A look that fails must not be the last one: no later one would end a session.
                log.exception("what array workers hold cannot be compared with their leases")

    async def _look(self) -> None:
        seats = self._seats()
        if seats:
            # The system takes its time to count when there are hundreds of processes.
            self._compare(await asyncio.to_thread(self._conductor.memory.measure, seats))

    def _seats(self) -> list[Seat]:
        workers = self._conductor.workers
        return [
            Seat(session.id, session.lease, session.library, workers[session.worker].pid)
            for session in self._conductor.node.sessions
            if seam_of(session.library)
            and session.worker in workers
            and session.state is not SessionState.ENDING
        ]

    def _compare(self, held: Mapping[Seat, int]) -> None:
        # Sessions may have ended, and leases, while the processes were read.
        there = set(self._seats())
        leases = {lease.id: lease.amount.memory_bytes for lease in self._conductor.node.leases}
        now = {seat: held_here for seat, held_here in held.items() if seat in there}
        for seat, total in self._conductor.memory.too_much(now, leases):
            log.error(
                "session %d ends: the array workers of lease %s hold %s, more than its memory (%s)",
                seat.session, seat.lease, format_bytes(total), format_bytes(leases[seat.lease]),
            )  # fmt: skip
            audit("memory_exceeded", session=seat.session, lease=seat.lease, held_bytes=total)
            self._conductor.feed(on.MemoryExceeded(seat.session, total))
