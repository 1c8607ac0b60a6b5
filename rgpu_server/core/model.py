"""Data types of the state machines."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from msgspec import Struct

from rgpu_common.clusters import CONTAINER_KEY
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM as PPM
from rgpu_common.units import Memory

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


class Refusal(Struct, frozen=True):
    """A refusal and the sentence that the user gets."""

    code: Code
    sentence: str


class RefusedError(Exception):
    """Carries a refusal out of a decision; `Node.handle` turns it into an action."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.refusal = Refusal(code, sentence)


class Device(Struct, frozen=True):
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


class LeaseKey(Struct, frozen=True, order=True):
    """Names a lease: processes with one key share one lease."""

    tenant: str
    name: str

    @classmethod
    def of_client(cls, tenant: str, name: str, container: str) -> LeaseKey:
        """Returns the key of a client: without a name, its container has one lease."""
        return cls(tenant, name or f"{CONTAINER_KEY}{container}")

    def __str__(self) -> str:
        return f"{self.name!r} of tenant {self.tenant!r}"


class Quota(Struct, frozen=True):
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


class Wish(Struct, frozen=True):
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
