"""What the shell shall do, in order."""

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
    """Lets a warm worker end by closing its control socket."""

    worker: int


@dataclass(frozen=True, slots=True)
class KillWorker:
    """The worker was told to end and did not."""

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
    """Tells the worker to tell its client and end."""

    worker: int
    session: int
    sentence: str


@dataclass(frozen=True, slots=True)
class RefuseSession:
    """Answers HELLO with REFUSED and closes."""

    session: int
    refusal: Refusal


@dataclass(frozen=True, slots=True)
class ForgetSession:
    """The session is over; the shell drops what it holds for it."""

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
    """Marks the lowest free slot, which is this one, as the session's."""

    lease: str
    slot: int
    session: int


@dataclass(frozen=True, slots=True)
class ClearSlot:
    """The slot's worker is gone: add its counters to the lease's and set the slot free."""

    lease: str
    slot: int
    session: int


@dataclass(frozen=True, slots=True)
class DropPage:
    lease: str


@dataclass(frozen=True, slots=True)
class AnnounceReclaim:
    """The lease ends after `seconds`, because the owner needs the memory that it borrowed."""

    lease: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A request on a lease succeeded; the lease as it is now can be read from the node."""

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
    """A claim has its lease, which can be read from the node."""

    claim: int
    lease: str


@dataclass(frozen=True, slots=True)
class TellPlace:
    """A claim waits: it is number `place` of `waiting` in its line.  sentence: for what."""

    claim: int
    place: int
    waiting: int
    sentence: str


@dataclass(frozen=True, slots=True)
class RefuseClaim:
    """A claim is refused; the shell forgets it."""

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
