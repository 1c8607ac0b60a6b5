"""Words of the state machines."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM as PPM
from rgpu_common.units import Memory

if TYPE_CHECKING:
    from collections.abc import Mapping

# Whoever names no tenant.
DEFAULT_TENANT = "default"
# The pool of a device that the configuration puts in none.
DEFAULT_POOL = "public"


class Code(Enum):
    """Why something is refused; shells translate it for their protocol."""

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

    library: name of the worker pool that serves it.
    default_memory_bytes: what a lease gets that does not say.
    model, pool: what tenants' quotas and pools are about.
    """

    ordinal: int
    library: str
    memory_bytes: int
    default_memory_bytes: int
    model: str = ""
    pool: str = DEFAULT_POOL


class Amount(NamedTuple):
    """Share in millionths of a device (of a sum: of devices) and memory in bytes."""

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
    """The ceilings of a lease.  policy: how request and limit came about.  priority, weight: who
    gets idle device time first, and how much of it.
    """

    memory_bytes: int
    share_request_ppm: int = 0
    share_limit_ppm: int = PPM
    policy: SharePolicy = SharePolicy.NONE
    priority: int = 0
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Wish:
    """Sizes as asked for: 0 and None are "the server's default", device None is "any".

    memory_ppm: the memory as millionths of the device, where memory_bytes is 0.
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
        """Returns the bytes asked for on this device; 0: its default."""
        return Memory(self.memory_bytes, self.memory_ppm).of(device.memory_bytes)


class LeaseState(Enum):
    """A lease that is not active holds its memory until its last session is gone.  Values: the
    verb.
    """

    ACTIVE = "is active"
    REVOKED = "was revoked"
    EXPIRED = "has expired"
    RECLAIMED = "was reclaimed by the owner of the memory that it had borrowed"
    DRAINED = "was ended when its server was drained"


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
    """What all leases and sessions of one tenant may take together; None is no ceiling.

    memory_bytes, share_ppm: over all devices, never to be passed.
    max_priority, max_weight: what its leases may ask for.
    pools: of which pools it may use devices; () is all.
    quota: model -> what it owns of the devices of that model; None: it has no quota.
    borrow: it may have more while other owners leave theirs idle, `borrow_limit` of a model at
        most.
    lend: others may have what it leaves idle.
    leases: granted ones.
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
    """What the operator set.

    slots: sessions that fit in one lease page.
    max_sessions: sessions at once.  tenant_sessions: of one tenant whose table names no number;
        None is half of max_sessions.
    ttl_seconds: life of an explicit lease without keep-alive, where the grant does not say.
    grace_seconds: how long an implicit lease stays after its last session.
    settle_seconds: how long a session that asks for other sizes than its implicit lease has waits
        for the lease to become empty, as when one program follows another.
    memory_seconds: how long an ended lease's key is refused by name.
    open_seconds: a session must be open by then.
    end_seconds: a worker that was told to end is killed after that.
    max_tenants: tenants without a table of their own that may have sessions or granted leases.
    max_leases: granted leases.
    max_idle_leases: empty leases that one tenant, and one address, may leave behind.
    absent_tenant_unlimited, absent_model_unlimited: what it means that a tenant has no quota, and
        that its quota does not name a model; otherwise it gets nothing there.
    reclaim_memory: an owner gets borrowed memory back; reclaim_seconds: after this notice.
    claim_seconds: how long it is then kept for the owner.
    keep_place_seconds: how long a run that holds a lease keeps a place for its next session.
    max_claims: runs that hold leases at once, of one tenant half of them; None is twice
        max_sessions.
    max_waiting: claims that wait for room, of all, of one tenant, from one address.
    max_wait_seconds: no claim waits for longer.
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
