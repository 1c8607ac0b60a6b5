"""What happens to a node, in the past tense.  The shell feeds these to `Node.handle` with the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rgpu_server.core.model import Wish


@dataclass(frozen=True, slots=True)
class Started:
    """The shell is ready to carry out actions."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The time that `Node.next_wake` named has come."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The operator stops the server; `end_sessions` ends the running ones too."""

    end_sessions: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRequested:
    """An explicit grant; ttl_seconds 0 is the default, an empty key asks for a new one."""

    request: int
    tenant: str
    key: str = ""
    wish: Wish = field(default_factory=Wish)
    ttl_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KeepAliveRequested:
    request: int
    lease: str


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """None leaves a size as it is."""

    request: int
    lease: str
    memory_bytes: int | None = None
    share_request_ppm: int | None = None
    share_limit_ppm: int | None = None


@dataclass(frozen=True, slots=True)
class RevokeRequested:
    request: int
    lease: str


@dataclass(frozen=True, slots=True)
class SessionRequested:
    """A HELLO that could be read.  An empty key means the lease of tenant and container."""

    session: int
    tenant: str
    key: str = ""
    container: str = ""
    wish: Wish = field(default_factory=Wish)


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
    | TimePassed
    | StopRequested
    | LeaseRequested
    | KeepAliveRequested
    | ResizeRequested
    | RevokeRequested
    | SessionRequested
    | ClientLeft
    | WorkerReady
    | SessionOpened
    | SessionRefusedByWorker
    | WorkerExited
)
