"""What sessions export to other sessions of their lease, and who is charged for it.

An exporter is charged for its memory until it has freed it and every other session has closed it;
its worker sees to that. When the exporter ends, its slot of the lease page is cleared, but the
memory stays while another session has it open. Then one of these sessions is charged: the *payer*,
the first in the list. So the lease is charged once at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Container

# What the sessions of one lease may have open together: so many rows fit in the record by which a
# later daemon adopts the lease.
MOST_OPEN = 1024


class Charge(Struct, frozen=True):
    """Charge the slot of a session, also above the limit: the memory exists."""

    session: int
    charged: int


class Discharge(Struct, frozen=True):
    """Take a charge off the slot of a session."""

    session: int
    charged: int


class Release(Struct, frozen=True):
    """Tell the exporter's worker that one session less has the export open."""

    exporter: int
    number: int


Effect = Charge | Discharge | Release


class _Export(Struct):
    lease: str
    charged: int
    exporter_lives: bool
    sessions: list[int]


class Exports:
    """The exports that other sessions have open, by exporter and number."""

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], _Export] = {}

    def has_room(self, lease: str) -> bool:
        """True if one more session of the lease may open an export."""
        return sum(len(e.sessions) for e in self._open.values() if e.lease == lease) < MOST_OPEN

    def is_open(self, exporter: int, number: int, session: int) -> bool:
        """True if the session has the export open."""
        export = self._open.get((exporter, number))
        return export is not None and session in export.sessions

    def opened(self, lease: str, exporter: int, number: int, charged: int, session: int) -> None:
        """Notes that a session has opened an export of a session that lives."""
        export = self._open.setdefault(
            (exporter, number), _Export(lease, charged, exporter_lives=True, sessions=[])
        )
        export.sessions.append(session)

    def closed(self, exporter: int, number: int, session: int) -> list[Effect]:
        """Notes that a session that lives has closed an export."""
        export = self._open.get((exporter, number))
        if export is None or session not in export.sessions:
            return []
        payer = not export.exporter_lives and export.sessions[0] == session
        effects = self._leave((exporter, number), session)
        return [*effects, Discharge(session, export.charged)] if payer else effects

    def ended(self, session: int) -> list[Effect]:
        """Notes that a session's worker is gone; its slot is about to be cleared."""
        effects: list[Effect] = []
        for key, export in list(self._open.items()):
            if session in export.sessions:
                effects += self._leave(key, session)
            elif key[0] == session and export.exporter_lives:
                export.exporter_lives = False
                effects.append(Charge(export.sessions[0], export.charged))
        return effects

    def gone(self, sessions: Container[int]) -> dict[str, set[int]]:
        """Returns the sessions of the rows that are not among `sessions`, by lease."""
        gone: dict[str, set[int]] = {}
        for (exporter, _), export in self._open.items():
            who = [*export.sessions, *([exporter] if export.exporter_lives else [])]
            missing = {session for session in who if session not in sessions}
            if missing:
                gone.setdefault(export.lease, set()).update(missing)
        return gone

    def _leave(self, key: tuple[int, int], session: int) -> list[Effect]:
        export = self._open[key]
        payer = export.sessions[0]
        export.sessions.remove(session)
        if not export.sessions:
            del self._open[key]
        if export.exporter_lives:
            return [Release(*key)]
        if payer == session and export.sessions:
            return [Charge(export.sessions[0], export.charged)]
        return []

    def record(self, lease: str) -> list[list[int]]:
        """Returns the lease's rows for a later daemon."""
        return [
            [exporter, number, export.charged, int(export.exporter_lives), *export.sessions]
            for (exporter, number), export in self._open.items()
            if export.lease == lease
        ]

    def adopt(self, lease: str, record: object) -> None:
        """Takes over what an earlier daemon noted; rows that cannot be read are left out."""
        for row in record if isinstance(record, list) else []:
            if not isinstance(row, list) or len(row) < 5:
                continue
            if not all(type(value) is int and value >= 0 for value in row):
                continue
            exporter, number, charged, lives, *sessions = row
            self._open[(exporter, number)] = _Export(lease, charged, bool(lives), sessions)
