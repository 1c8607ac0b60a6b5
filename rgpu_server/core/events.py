"""The events of a node, named in the past tense. The shell hands them to `Node.handle` with the
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from rgpu_server.core.model import Wish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.core.booked import Booked
    from rgpu_server.core.lease import Lease
    from rgpu_server.core.sessions import Session
    from rgpu_server.core.shares import Change


class Started(Struct, frozen=True):
    """The shell is ready to carry out actions."""


class Adopted(Struct, frozen=True):
    """The node takes over leases and sessions of an earlier daemon on this machine.

    Each session has a worker, whose number is not used yet, and its slot in its lease. A lease that
    has ended still has sessions.
    """

    leases: tuple[Lease, ...]
    sessions: tuple[Session, ...]


class TimePassed(Struct, frozen=True):
    """The time that `Node.next_wake` named has come."""


class StopRequested(Struct, frozen=True):
    """The operator stops the server. end_sessions: running sessions end too."""

    end_sessions: bool = False


class LeaseRequested(Struct, frozen=True):
    """A client asks for an explicit lease. ttl_seconds 0 is the default; an empty key asks for a
    new key.

    passes_line: an operator decided that the lease may take room for which claims wait in line.
    booked: a cluster's manager asks. operator: an operator asks. name: what people call it.
    """

    request: int
    tenant: str
    key: str = ""
    wish: Wish = field(default_factory=Wish)
    ttl_seconds: float = 0.0
    passes_line: bool = False
    booked: Booked | None = None
    operator: bool = False
    name: str = ""


class KeepAliveRequested(Struct, frozen=True):
    """ttl_seconds: the time of the lease from now on; 0: the one that it has."""

    request: int
    lease: str
    ttl_seconds: float = 0.0


class ResizeRequested(Struct, frozen=True):
    """A client changes the sizes of a lease.

    used: session -> bytes that it holds. kill: if that is more than the lease has afterwards,
    sessions are ended, the largest first, until the rest fits. operator: an operator, or the
    cluster's manager, asks.
    """

    request: int
    lease: str
    change: Change
    used: Mapping[int, int] = field(default_factory=dict)
    kill: bool = False
    operator: bool = False


class PauseRequested(Struct, frozen=True):
    """A client pauses a lease; with `paused` False it resumes the lease. operator: an operator
    asks, and only an operator can resume the lease.
    """

    request: int
    lease: str
    paused: bool = True
    operator: bool = True


class MemoryObserved(Struct, frozen=True):
    """The shell has read how many bytes the leases hold that are over their limit."""

    used: Mapping[str, int]


class MemoryExceeded(Struct, frozen=True):
    """The sessions of a lease hold more memory of the node than it has, by the system's count: this
    one, the largest, is ended. held_bytes: what they hold together.
    """

    session: int
    held_bytes: int


class DrainRequested(Struct, frozen=True):
    """An operator drains the server: it takes no new lease and no new session from now on.

    end_after_seconds: running leases end after this time; None: they go on.
    """

    request: int
    end_after_seconds: float | None = None


class UndrainRequested(Struct, frozen=True):
    request: int


class RevokeRequested(Struct, frozen=True):
    """why: for the programs that use the lease, or ""."""

    request: int
    lease: str
    why: str = ""


class SessionRequested(Struct, frozen=True):
    """A client has sent a valid HELLO. An empty key means the lease of tenant and container.

    address: the client's network, or its user on this machine; what one address may leave behind is
    bounded. seam: the array library that the session needs, "" for the driver seam. operator: the
    client is an operator's. name: of its program.
    """

    session: int
    tenant: str
    key: str = ""
    container: str = ""
    wish: Wish = field(default_factory=Wish)
    address: str = ""
    seam: str = ""
    operator: bool = False
    name: str = ""


class ClaimRequested(Struct, frozen=True):
    """A run asks for the lease of its program, and holds the lease until `ClaimLeft`.

    own: the lease is for this run alone. wait_seconds: how long the claim may wait in line for
    room. proved: a credential proves that the client is of this tenant. operator: the client is an
    operator's. name: of the run.
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
    operator: bool = False
    name: str = ""


class ClaimLeft(Struct, frozen=True):
    """The run of a claim has ended, or has stopped waiting."""

    claim: int


class ClaimCancelled(Struct, frozen=True):
    """Somebody takes a claim out of the line. why: a sentence for its run."""

    request: int
    claim: int
    why: str


class ClientLeft(Struct, frozen=True):
    """The client of a session that waits for a worker closed its connection."""

    session: int


class ClientDied(Struct, frozen=True):
    """The process of a session's client has ended, whatever its connections look like."""

    session: int


class WorkerReady(Struct, frozen=True):
    worker: int


class SessionOpened(Struct, frozen=True):
    """A worker has welcomed its client."""

    worker: int


class SessionRefusedByWorker(Struct, frozen=True):
    """A worker has refused its client and told it why."""

    worker: int


class WorkerExited(Struct, frozen=True):
    """A worker's process has exited; `reason` is a sentence."""

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
    | MemoryExceeded
    | DrainRequested
    | UndrainRequested
    | RevokeRequested
    | SessionRequested
    | ClaimRequested
    | ClaimLeft
    | ClaimCancelled
    | ClientLeft
    | ClientDied
    | WorkerReady
    | SessionOpened
    | SessionRefusedByWorker
    | WorkerExited
)
