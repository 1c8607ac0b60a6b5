"""What happens to a node, in the past tense.  The shell feeds these to `Node.handle` with the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rgpu_server.core.model import Wish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.core.lease import Lease
    from rgpu_server.core.sessions import Session
    from rgpu_server.core.shares import Change


@dataclass(frozen=True, slots=True)
class Started:
    """The shell is ready to carry out actions."""


@dataclass(frozen=True, slots=True)
class Adopted:
    """Leases and sessions of an earlier daemon on this machine go on here; each session has a
    worker, whose number is not used yet, and its slot in its lease.  A lease that has ended has
    sessions.
    """

    leases: tuple[Lease, ...]
    sessions: tuple[Session, ...]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time that `Node.next_wake` named has come."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The operator stops the server; `end_sessions` ends the running ones too."""

    end_sessions: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """An explicit grant; ttl_seconds 0 is the default, an empty key asks for a new one.

    passes_line: it may take what claims in line wait for, as an operator has decided.
    """

    request: int
    tenant: str
    key: str = ""
    wish: Wish = field(default_factory=Wish)
    ttl_seconds: float = 0.0
    passes_line: bool = False


@dataclass(frozen=True, slots=True)
class KeepAliveRequested:
    request: int
    lease: str


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """used: session -> bytes that it holds.  kill: if that is more than the lease has afterwards,
    sessions are ended, the largest first, until it is not.
    """

    request: int
    lease: str
    change: Change
    used: Mapping[int, int] = field(default_factory=dict)
    kill: bool = False


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """paused False: the lease goes on.  operator: only an operator undoes it."""

    request: int
    lease: str
    paused: bool = True
    operator: bool = True


@dataclass(frozen=True, slots=True)
class MemoryObserved:
    """What leases that hold more than they have hold now, in bytes."""

    used: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """No new leases and sessions from now on; after `end_after_seconds` those that there are end,
    None: they go on.
    """

    request: int
    end_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class UndrainRequested:
    request: int


@dataclass(frozen=True, slots=True)
class RevokeRequested:
    request: int
    lease: str


@dataclass(frozen=True, slots=True)
class SessionRequested:
    """A HELLO that could be read.  An empty key means the lease of tenant and container.

    address: where it came from (a network, or a user of this machine), for the bounds on what one
    client may leave behind.
    """

    session: int
    tenant: str
    key: str = ""
    container: str = ""
    wish: Wish = field(default_factory=Wish)
    address: str = ""


@dataclass(frozen=True, slots=True)
class ClaimRequested:
    """A run asks for the lease of its program, and holds it until `ClaimLeft`.

    own: the lease is for this run alone.  wait_seconds: how long it waits in line for room.
    proved: a credential says that it is of this tenant.
    """

    claim: int
    tenant: str
    key: str = ""
    container: str = ""
    wish: Wish = field(default_factory=Wish)
    address: str = ""
    own: bool = False
    wait_seconds: float = 0.0
    proved: bool = False


@dataclass(frozen=True, slots=True)
class ClaimLeft:
    """The run has ended, or gave up waiting."""

    claim: int


@dataclass(frozen=True, slots=True)
class ClientLeft:
    """The client of a session that waits for a worker closed its connection."""

    session: int


@dataclass(frozen=True, slots=True)
class WorkerReady:
    worker: int


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """The worker welcomed its client."""

    worker: int


@dataclass(frozen=True, slots=True)
class SessionRefusedByWorker:
    """The worker refused its client and has told it why."""

    worker: int


@dataclass(frozen=True, slots=True)
class WorkerExited:
    """The process is gone; `reason` is a sentence."""

    worker: int
    reason: str


Event = (
    Started
    | Adopted
    | TimePassed
    | StopRequested
    | LeaseRequested
    | KeepAliveRequested
    | ResizeRequested
    | PauseRequested
    | MemoryObserved
    | DrainRequested
    | UndrainRequested
    | RevokeRequested
    | SessionRequested
    | ClaimRequested
    | ClaimLeft
    | ClientLeft
    | WorkerReady
    | SessionOpened
    | SessionRefusedByWorker
    | WorkerExited
)
