"""Sessions and their table."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.model import SessionState
from rgpu_server.core.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator


class Session(Struct):
    """A session of an application process, with its worker once it has one.

    deadline: when it must be open (WAITING, OPENING), or its worker gone (ENDING); None while OPEN.
    mark: its turn among the sessions that wait for a worker of the library (`Turns`).
    """

    id: int
    tenant: str
    lease: str
    slot: int
    library: str
    opened_at: float
    deadline: float | None
    state: SessionState = SessionState.WAITING
    worker: int | None = None
    mark: int = 0


class SessionTable:
    """All sessions, in the order of their requests."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}
        self._turns: defaultdict[str, Turns] = defaultdict(Turns)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session: int) -> Session | None:
        """Returns the session with this id, or None."""
        return self._sessions.get(session)

    def add(self, session: Session) -> None:
        """Adds a session; ValueError if its id is taken."""
        if session.id in self._sessions:
            raise ValueError(f"session {session.id} exists")
        self._sessions[session.id] = session
        if session.state is SessionState.WAITING:
            session.mark = self._turns[session.library].mark(session.tenant)

    def remove(self, session: Session) -> None:
        """Forgets a session."""
        del self._sessions[session.id]

    def waiting(self, library: str) -> list[Session]:
        """Returns the sessions that wait for a worker of this library, first come first."""
        return [
            s
            for s in self._sessions.values()
            if s.state is SessionState.WAITING and s.library == library
        ]

    def next_waiting(self, library: str) -> Session | None:
        """Returns the session that gets the next worker of this library; None: none waits. Tenants
        take turns, so that one tenant's many sessions do not hold up another's.
        """
        return min(self.waiting(library), key=lambda session: session.mark, default=None)

    def give(self, session: Session, worker: int) -> None:
        """Gives a session that waits its worker."""
        session.worker, session.state = worker, SessionState.OPENING
        self._turns[session.library].serve(session.mark)

    def of_tenant(self, tenant: str) -> int:
        """Returns how many sessions a tenant has."""
        return sum(1 for s in self._sessions.values() if s.tenant == tenant)

    def late(self, now: float) -> list[Session]:
        """Returns the sessions whose deadline has passed."""
        return [s for s in self._sessions.values() if s.deadline is not None and s.deadline <= now]

    def next_deadline(self) -> float | None:
        """Returns the earliest deadline; None if there is none."""
        return min(
            (s.deadline for s in self._sessions.values() if s.deadline is not None), default=None
        )
