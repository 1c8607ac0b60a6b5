"""The actions that the shell carries out, in order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.core.model import PageState, Quota, Refusal


@dataclass(frozen=True, slots=True)
class StartWorker:
    worker: int
    library: str


@dataclass(frozen=True, slots=True)
class StopWorker:
    """Ends a warm worker by closing its control socket."""

    worker: int


@dataclass(frozen=True, slots=True)
class KillWorker:
    """Kills a worker that was told to end and has not ended."""

    worker: int


@dataclass(frozen=True, slots=True)
class AssignWorker:
    """Gives a session's connection to a warm worker."""

    worker: int
    session: int
    lease: str
    tenant: str
    slot: int
    device: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class EndSession:
    """Makes a worker tell its client the sentence, and end."""

    worker: int
    session: int
    sentence: str


@dataclass(frozen=True, slots=True)
class RefuseSession:
    """Answers HELLO with REFUSED and closes the connection."""

    session: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class ForgetSession:
    """The session has ended; the shell releases everything that it holds for the session."""

    session: int
    reason: str


@dataclass(frozen=True, slots=True)
class MakePage:
    lease: str
    quota: Quota


@dataclass(frozen=True, slots=True)
class UpdatePage:
    lease: str
    quota: Quota
    state: PageState


@dataclass(frozen=True, slots=True)
class TakeSlot:
    """Marks the lowest free slot of the lease's page, which is `slot`, as the session's."""

    lease: str
    slot: int
    session: int


@dataclass(frozen=True, slots=True)
class ClearSlot:
    """The worker of a slot has exited: adds its counters to the lease's, and frees the slot."""

    lease: str
    slot: int
    session: int


@dataclass(frozen=True, slots=True)
class DropPage:
    lease: str


@dataclass(frozen=True, slots=True)
class AnnounceReclaim:
    """Announces that a lease ends after `seconds`, because the owner needs the memory that it
    borrowed.
    """

    lease: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A request on a lease succeeded. The node has the lease in its new state."""

    request: int
    lease: str
    ended_sessions: int = 0


@dataclass(frozen=True, slots=True)
class Refuse:
    """A request on a lease is refused."""

    request: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class GrantClaim:
    """Grants a claim. The node has its lease."""

    claim: int
    lease: str


@dataclass(frozen=True, slots=True)
class TellPlace:
    """Tells a waiting claim that it is number `place` of `waiting` in its line. sentence: why it
    waits.
    """

    claim: int
    place: int
    waiting: int
    sentence: str


@dataclass(frozen=True, slots=True)
class RefuseClaim:
    """Refuses a claim; the shell forgets it."""

    claim: int
    refusal: Refusal


Action = (
    StartWorker
    | StopWorker
    | KillWorker
    | AssignWorker
    | EndSession
    | RefuseSession
    | ForgetSession
    | MakePage
    | UpdatePage
    | TakeSlot
    | ClearSlot
    | DropPage
    | AnnounceReclaim
    | Answer
    | Refuse
    | GrantClaim
    | TellPlace
    | RefuseClaim
)
