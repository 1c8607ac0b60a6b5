"""Data types of the state machines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM as PPM
from rgpu_common.units import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

# The tenant of clients that name none.
DEFAULT_TENANT = "default"
# The pool of a device for which the configuration names no pool.
DEFAULT_POOL = "public"


class Code(Enum):
    """The reason of a refusal. Shells translate it for their protocol."""

    BAD_REQUEST = "bad request"
    NO_SUCH_DEVICE = "no such device"
    NO_MEMORY = "no memory"
    NO_SHARE = "no share"
    LEASE_UNKNOWN = "lease unknown"
    LEASE_ENDED = "lease ended"
    LEASE_EXISTS = "lease exists"
    LEASE_TOO_SMALL = "lease too small"
    LEASE_FULL = "lease full"
    TENANT_LIMIT = "tenant limit"
    LENT = "lent"
    IN_LINE = "in line"
    SERVER_FULL = "server full"
    NO_WORKER = "no worker"
    STOPPING = "stopping"
    DRAINING = "draining"
    NOT_IDENTIFIED = "not identified"
    NOT_ALLOWED = "not allowed"


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

    library: name of the worker pool that serves it. default_memory_bytes: the memory limit of a
    lease that asks for none. model, pool: the names by which tenants' quotas and pools refer to it.
    """

    ordinal: int
    library: str
    memory_bytes: int
    default_memory_bytes: int
    model: str = ""
    pool: str = DEFAULT_POOL


class Amount(NamedTuple):
    """A share in millionths of a device (in a sum: of devices) and memory in bytes."""

    share_ppm: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True, order=True)
class LeaseKey:
    """Names a lease: processes with one key share one lease."""

    tenant: str
    name: str

    def __str__(self) -> str:
        return f"{self.name!r} of tenant {self.tenant!r}"


@dataclass(frozen=True, slots=True)
class Quota:
    """The ceilings of a lease.

    policy: the rule that set request and limit. priority: leases of a higher priority get idle
    device time first. weight: how leases of one priority divide that time.
    """

    memory_bytes: int
    share_request_ppm: int = 0
    share_limit_ppm: int = PPM
    policy: SharePolicy = SharePolicy.NONE
    priority: int = 0
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """Sizes as asked for. 0 and None mean the server's default; device None means any device.

    memory_ppm: the memory in millionths of the device's memory; used if memory_bytes is 0.
    """

    device: int | None = None
    memory_bytes: int = 0
    share_request_ppm: int = 0
    share_limit_ppm: int = 0
    memory_ppm: int = 0
    policy: SharePolicy | None = None
    priority: int | None = None
    weight: int | None = None

    def memory_on(self, device: Device) -> int:
        """Returns the bytes that are asked for on this device; 0 for the device's default."""
        return Memory(self.memory_bytes, self.memory_ppm).of(device.memory_bytes)


class LeaseState(Enum):
    """The state of a lease. The values are verbs for sentences.

    A lease that is not active holds its memory until its last session is gone.
    """

    ACTIVE = "is active"
    REVOKED = "was revoked"
    EXPIRED = "has expired"
    RECLAIMED = "was reclaimed by the owner of the memory that it had borrowed"
    DRAINED = "was ended when its server was drained"


class SessionState(Enum):
    """The state of a session.

    WAITING: it has no worker yet. OPENING: a worker has its connection. OPEN: the worker has
    welcomed the client. ENDING: the worker was told to end.
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
    """The ceilings of one tenant over all its leases and sessions. None means no ceiling.

    memory_bytes, share_ppm: over all devices. max_priority, max_weight: the highest that its leases
    may ask for. pools: the pools whose devices it may use; () means all. quota: model -> what it
    owns of the devices of that model; None: it has no quota. borrow: it may hold more than it owns
    while other owners leave theirs idle. borrow_limit: the most share, and memory, of a model that
    it may borrow. lend: other tenants may use what it leaves idle. leases: the most granted leases.
    """

    sessions: int | None = None
    memory_bytes: int | None = None
    share_ppm: int | None = None
    max_priority: int = 0
    max_weight: int = 1
    pools: tuple[str, ...] = ()
    quota: Mapping[str, Amount] | None = None
    borrow: bool = False
    borrow_limit: tuple[int | None, int | None] = (None, None)
    lend: bool = True
    leases: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The operator's settings.

    slots: sessions that fit in one lease page.
    max_sessions: the most sessions at once. tenant_sessions: the most of one tenant whose table
        names no number; None is half of max_sessions.
    ttl_seconds: life of an explicit lease without keep-alive, if the grant does not say.
    grace_seconds: how long an implicit lease stays after its last session.
    settle_seconds: how long a session that asks for other sizes than its implicit lease has waits
        for the lease to become empty, as when one program follows another.
    memory_seconds: how long an ended lease's key is refused by name.
    open_seconds: how long a session may take to open.
    end_seconds: how long a worker that was told to end may take before it is killed.
    max_tenants: the most tenants without a table that may have sessions or granted leases.
    max_leases: the most granted leases.
    max_idle_leases: the most empty leases of one tenant, and from one address.
    absent_tenant_unlimited: a tenant without a quota has no ceiling; otherwise it gets nothing.
    absent_model_unlimited: a tenant has no ceiling on models that its quota does not name;
        otherwise it gets nothing of them.
    reclaim_memory: an owner gets borrowed memory back. reclaim_seconds: the notice before that.
    claim_seconds: how long the reclaimed memory is then kept for the owner.
    keep_place_seconds: how long a run that holds a lease keeps a place for its next session.
    max_claims: the most runs that hold leases at once, half of them of one tenant; None is twice
        max_sessions.
    max_waiting: the most claims that wait for room: in all, of one tenant, from one address.
    max_wait_seconds: the longest wait of a claim.
    """

    slots: int = 56
    max_sessions: int = 256
    tenant_sessions: int | None = None
    default_share_request_ppm: int = 0
    default_share_limit_ppm: int = PPM
    default_policy: SharePolicy = SharePolicy.NONE
    max_tenants: int = 64
    max_leases: int = 1024
    max_idle_leases: int = 16
    absent_tenant_unlimited: bool = True
    absent_model_unlimited: bool = False
    reclaim_memory: bool = True
    reclaim_seconds: float = 30.0
    claim_seconds: float = 60.0
    keep_place_seconds: float = 60.0
    max_claims: int | None = None
    max_waiting: tuple[int, int, int] = (256, 16, 64)
    max_wait_seconds: float = 86400.0
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
