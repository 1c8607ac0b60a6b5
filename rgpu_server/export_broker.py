"""Carries exports from worker to worker: memory and events that processes of one lease share.

Workers have no connection to each other. The daemon asks the exporter's worker, and passes its
answer, with the descriptor that comes with it, to the worker that opens the export. It keeps no
tokens: a token names the exporter's session, and the exporter's worker knows its secret.
"""

from __future__ import annotations

import itertools
import os
import stat
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from rgpu_common.wire.status import (
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_OUT_OF_MEMORY,
)
from rgpu_common.wire.worker import (
    ExportClosed,
    ExportGiven,
    ExportOpened,
    ExportReleased,
    ExportWanted,
    OpenExport,
    Shared,
    encode_export_opened,
    encode_export_released,
    encode_export_wanted,
)
from rgpu_server.core.exports import Charge, Discharge, Effect, Exports

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_server.core.sessions import Session, SessionTable
    from rgpu_server.workers.pages import LeasePage

# Questions of one session that have no answer yet. A worker asks for a call that waits for it.
_MOST_ASKED = 64

FromWorker = OpenExport | ExportGiven | ExportClosed


class Worker(Protocol):
    """What the broker needs of a worker process."""

    def send(self, message: bytes, fds: Sequence[int] = ()) -> bool: ...

    def distrust(self, why: str) -> None: ...


class Pages(Protocol):
    """Finds the page of a lease."""

    def get(self, lease_id: str) -> LeasePage | None: ...


def _is_as_large(fd: int, size: int) -> bool:
    """False for an emulated device's file of another size. A driver's descriptor has no size."""
    status = os.fstat(fd)
    return not stat.S_ISREG(status.st_mode) or status.st_size == size


class _Asked(Struct):
    """A question to an exporter's worker. session: who asked; 0 if that session has ended."""

    session: int
    request: int
    exporter: int
    number: int
    shared: Shared


class ExportBroker:
    """Passes the messages on, and moves charges when sessions end.

    changed: called with a lease when what its sessions have open has changed.
    """

    def __init__(
        self,
        sessions: SessionTable,
        worker_of: Callable[[Session], Worker | None],
        pages: Pages,
        changed: Callable[[str], None],
    ) -> None:
        self.exports = Exports()
        self._sessions = sessions
        self._worker_of = worker_of
        self._pages = pages
        self._changed = changed
        self._tickets = itertools.count(1)
        self._asked: dict[int, _Asked] = {}

    def said(self, session_id: int, message: FromWorker, fds: Sequence[int]) -> None:
        """Hears the worker of a session. The caller closes the descriptors."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        if isinstance(message, OpenExport):
            self._ask(session, message)
        elif isinstance(message, ExportGiven):
            self._pass_on(session, message, fds)
        else:
            effects = self.exports.closed(message.exporter, message.number, session_id)
            self._apply(session.lease, effects)

    def ended(self, session_id: int) -> None:
        """The worker of a session is gone, and its slot is still charged."""
        for ticket, asked in list(self._asked.items()):
            if asked.exporter == session_id:
                del self._asked[ticket]
                self._answer(asked, ExportOpened(asked.request, CUDA_ERROR_INVALID_HANDLE))
            elif asked.session == session_id:
                asked.session = 0  # the exporter may have answered already
        session = self._sessions.get(session_id)
        if session is not None:
            self._apply(session.lease, self.exports.ended(session_id))

    def adopted(self) -> None:
        """The leases of an earlier daemon are adopted. Sessions may have ended since it did."""
        known = {session.id for session in self._sessions}
        for lease, gone in self.exports.gone(known).items():
            for session in sorted(gone):
                self._apply(lease, self.exports.ended(session))

    def _ask(self, session: Session, message: OpenExport) -> None:
        status = self._refusal(session, message)
        exporter = self._sessions.get(message.exporter)
        asked = _Asked(
            session.id, message.request, message.exporter, message.number, message.shared
        )
        if status == 0 and exporter is not None:
            ticket = next(self._tickets)
            wanted = ExportWanted(ticket, message.number, message.shared, message.secret)
            if self._send(exporter, encode_export_wanted(wanted)):
                self._asked[ticket] = asked
                return
            status = CUDA_ERROR_INVALID_HANDLE
        self._answer(asked, ExportOpened(message.request, status))

    def _refusal(self, session: Session, message: OpenExport) -> int:
        exporter = self._sessions.get(message.exporter)
        # The same answer for a session of another lease and for one that never was.
        if exporter is None or exporter.lease != session.lease or exporter.id == session.id:
            return CUDA_ERROR_INVALID_HANDLE
        asked = sum(1 for one in self._asked.values() if one.session == session.id)
        if asked >= _MOST_ASKED:
            return CUDA_ERROR_OUT_OF_MEMORY
        if message.shared is Shared.EVENT:
            return 0
        if self.exports.is_open(message.exporter, message.number, session.id):
            return CUDA_ERROR_INVALID_CONTEXT
        return 0 if self.exports.has_room(session.lease) else CUDA_ERROR_OUT_OF_MEMORY

    def _pass_on(self, exporter: Session, message: ExportGiven, fds: Sequence[int]) -> None:
        asked = self._asked.get(message.ticket)
        if asked is None or asked.exporter != exporter.id:
            self._distrust(exporter, "it gave an export that nobody asked it for")
            return
        del self._asked[message.ticket]
        if message.status != 0:
            self._answer(asked, ExportOpened(asked.request, message.status))
            return
        opener = self._sessions.get(asked.session)
        opened = ExportOpened(asked.request, 0, message.size, message.handle)
        if asked.shared is Shared.EVENT:  # takes no memory of the lease
            if opener is not None:
                self._send(opener, encode_export_opened(opened), fds)
            return
        if fds and not _is_as_large(fds[0], message.charged):
            self._distrust(exporter, "the export has another size than it says")
            self._answer(asked, ExportOpened(asked.request, CUDA_ERROR_INVALID_HANDLE))
            return
        if opener is None or opener.lease != exporter.lease:
            self._send(exporter, encode_export_released(ExportReleased(asked.number)))
            return
        # Noted, also for a later daemon, before it is sent: from then on the memory may outlive the
        # exporter.
        self.exports.opened(
            exporter.lease, exporter.id, asked.number, message.charged, asked.session
        )
        self._changed(exporter.lease)
        if not self._send(opener, encode_export_opened(opened), fds):
            effects = self.exports.closed(exporter.id, asked.number, asked.session)
            self._apply(exporter.lease, effects)

    def _answer(self, asked: _Asked, answer: ExportOpened) -> None:
        opener = self._sessions.get(asked.session)
        if opener is not None:
            self._send(opener, encode_export_opened(answer))

    def _send(self, session: Session, message: bytes, fds: Sequence[int] = ()) -> bool:
        worker = self._worker_of(session)
        return worker is not None and worker.send(message, fds)

    def _distrust(self, session: Session, why: str) -> None:
        worker = self._worker_of(session)
        if worker is not None:
            worker.distrust(why)

    def _apply(self, lease: str, effects: Sequence[Effect]) -> None:
        # First what is charged anew: the lease's sum must never be too small.
        for effect in sorted(effects, key=lambda effect: not isinstance(effect, Charge)):
            if isinstance(effect, Charge | Discharge):
                self._charge(lease, effect)
                continue
            exporter = self._sessions.get(effect.exporter)
            if exporter is not None:
                self._send(exporter, encode_export_released(ExportReleased(effect.number)))
        if effects:
            self._changed(lease)

    def _charge(self, lease: str, effect: Charge | Discharge) -> None:
        page, session = self._pages.get(lease), self._sessions.get(effect.session)
        if page is None or session is None:
            return
        if isinstance(effect, Charge):
            page.count(session.slot, effect.charged)
        else:
            page.release(session.slot, effect.charged)
