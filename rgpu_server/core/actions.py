"""The actions that the shell carries out, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.core.model import PageState, Quota, Refusal


class StartWorker(Struct, frozen=True):
    worker: int
    library: str


class StopWorker(Struct, frozen=True):
    """Ends a warm worker by closing its control socket."""

    worker: int


class KillWorker(Struct, frozen=True):
    """Kills a worker that was told to end and has not ended, or that does not become ready."""

    worker: int
    why: str = "it did not end when told to"


class AssignWorker(Struct, frozen=True):
    """Gives a session's connection to a warm worker."""

    worker: int
    session: int
    lease: str
    tenant: str
    slot: int
    device: int
    memory_bytes: int


class EndSession(Struct, frozen=True):
    """Makes a worker tell its client the sentence, and end."""

    worker: int
    session: int
    sentence: str


class RefuseSession(Struct, frozen=True):
    """Answers HELLO with REFUSED and closes the connection."""

    session: int
    refusal: Refusal


class ForgetSession(Struct, frozen=True):
    """The session has ended; the shell releases everything that it holds for the session."""

    session: int
    reason: str


class MakePage(Struct, frozen=True):
    lease: str
    quota: Quota


class UpdatePage(Struct, frozen=True):
    lease: str
    quota: Quota
    state: PageState


class TakeSlot(Struct, frozen=True):
    """Marks the lowest free slot of the lease's page, which is `slot`, as the session's."""

    lease: str
    slot: int
    session: int


class ClearSlot(Struct, frozen=True):
    """The worker of a slot has exited: adds its counters to the lease's, and frees the slot."""

    lease: str
    slot: int
    session: int


class DropPage(Struct, frozen=True):
    lease: str


class AnnounceReclaim(Struct, frozen=True):
    """Announces that a lease ends after `seconds`, because the owner needs the memory that it
    borrowed.
    """

    lease: str
    seconds: float


class Answer(Struct, frozen=True):
    """A request on a lease, or on the node, succeeded. The node has the lease in its new state.
    unchanged: it was so already.
    """

    request: int
    lease: str
    ended_sessions: int = 0
    unchanged: bool = False


class Refuse(Struct, frozen=True):
    """A request on a lease is refused."""

    request: int
    refusal: Refusal


class GrantClaim(Struct, frozen=True):
    """Grants a claim. The node has its lease."""

    claim: int
    lease: str


class TellPlace(Struct, frozen=True):
    """Tells a waiting claim that it is number `place` of `waiting` in its line. sentence: why it
    waits.
    """

    claim: int
    place: int
    waiting: int
    sentence: str


class RefuseClaim(Struct, frozen=True):
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
