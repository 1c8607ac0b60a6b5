"""Words of the state machines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

PPM = 1_000_000


class Code(Enum):
    """Why something is refused; shells translate it for their protocol."""

    BAD_REQUEST = "bad request"
    NO_SUCH_DEVICE = "no such device"
    NO_MEMORY = "no memory"
    LEASE_UNKNOWN = "lease unknown"
    LEASE_ENDED = "lease ended"
    LEASE_EXISTS = "lease exists"
    LEASE_TOO_SMALL = "lease too small"
    LEASE_FULL = "lease full"
    TENANT_LIMIT = "tenant limit"
    SERVER_FULL = "server full"
    NO_WORKER = "no worker"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal and the sentence that the user gets."""

    code: Code
    sentence: str


class RefusedError(Exception):
    """Carries a refusal out of a decision; `Node.handle` turns it into an action."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = Refusal(code, sentence)


@dataclass(frozen=True, slots=True)
class Device:
    """A device of this server.

    library: name of the worker pool that serves it.
    default_memory_bytes: what a lease gets that does not say.
    """

    ordinal: int
    library: str
    memory_bytes: int
    default_memory_bytes: int


@dataclass(frozen=True, slots=True, order=True)
class LeaseKey:
    """Names a lease: processes with one key share one lease."""

    tenant: str
    name: str

    def __str__(self) -> str:
        return f"{self.name!r} of tenant {self.tenant!r}"


@dataclass(frozen=True, slots=True)
class Quota:
    """The ceilings of a lease.  share_limit_ppm 0 means the whole device."""

    memory_bytes: int
    share_request_ppm: int = 0
    share_limit_ppm: int = PPM


@dataclass(frozen=True, slots=True)
class Wish:
    """Sizes as asked for: 0 is "the server's default", device None is "any"."""

    device: int | None = None
    memory_bytes: int = 0
    share_request_ppm: int = 0
    share_limit_ppm: int = 0


class LeaseState(Enum):
    """A lease that is not active holds its memory until its last session is gone.  Values: the
    verb.
    """

    ACTIVE = "is active"
    REVOKED = "was revoked"
    EXPIRED = "has expired"


class SessionState(Enum):
    """WAITING: no worker yet.  OPENING: given to a worker.  OPEN: its client has been welcomed.
    ENDING: told to end.
    """

    WAITING = "waiting"
    OPENING = "opening"
    OPEN = "open"
    ENDING = "ending"


class PageState(Enum):
    """The state word of a lease page."""

    ACTIVE = 1
    PAUSED = 2
    ENDED = 3


@dataclass(frozen=True, slots=True)
class TenantPolicy:
    """What all leases and sessions of one tenant may take together; None is no ceiling."""

    sessions: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What the operator set.

    slots: sessions that fit in one lease page.
    ttl_seconds: life of an explicit lease without keep-alive, where the grant does not say.
    grace_seconds: how long an implicit lease stays after its last session.
    settle_seconds: how long a session that asks for other sizes than its implicit lease has waits
        for the lease to become empty, as when one program follows another.
    memory_seconds: how long an ended lease's key is refused by name.
    open_seconds: a session must be open by then.
    end_seconds: a worker that was told to end is killed after that.
    """

    slots: int = 56
    max_sessions: int = 256
    default_share_request_ppm: int = 0
    default_share_limit_ppm: int = PPM
    ttl_seconds: float = 30.0
    max_ttl_seconds: float = 86400.0
    grace_seconds: float = 5.0
    settle_seconds: float = 1.0
    memory_seconds: float = 3600.0
    open_seconds: float = 10.0
    end_seconds: float = 2.0
    warm_workers: int = 2
    max_starting: int = 4
    max_start_failures: int = 4
    first_back_off_seconds: float = 0.1
    max_back_off_seconds: float = 30.0
