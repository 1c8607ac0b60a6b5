"""What the daemon is given to start with, whoever wrote it down (`config_reader`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.units import parse_bytes
from rgpu_server.core.model import DEFAULT_POOL, Policy, TenantPolicy
from rgpu_server.identity.settings import Identity, Tls

if TYPE_CHECKING:
    from rgpu_common.endpoints import Endpoint, TcpEndpoint


@dataclass(frozen=True, slots=True)
class DeviceSpec:
    """A device as asked for.  memory_bytes is for an emulated one, ordinal for one of the
    driver.
    """

    kind: str
    memory_bytes: int = 0
    ordinal: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers may take before they have a session, what a session may have in flight, how
    long it may be without a connection (0: not at all), and whether it may be compressed.
    """

    handshake_seconds: float = 10.0
    handshakes: int = 128
    control_connections: int = 256
    gateway_connections: int = 1024
    stream_credits: int = 512
    stream_credit_bytes: int = 64 << 20
    resume_grace_seconds: float = 10.0
    compression: bool = True


@dataclass(frozen=True, slots=True)
class CompilerLimits:
    """What the PTX compiler of one tenant may take, all its sessions together.

    processes: at a time.  memory_bytes: of them and of what waits for them.  seconds: processor
    time of one request.  burst_seconds: processor time at ordinary priority, which fills again.
    cache_bytes: compiled kernels on disk.
    """

    processes: int = 2
    memory_bytes: int = 4 << 30
    seconds: float = 60.0
    burst_seconds: float = 300.0
    cache_bytes: int = 1 << 30


@dataclass(frozen=True, slots=True)
class Emulated:
    """How emulated devices run.  cache: a folder, "" for the one of the server's address."""

    timing: str = "normal"
    cache: str = ""
    launch_seconds: int = 60
    compiler: CompilerLimits = field(default_factory=CompilerLimits)


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Whether device time is shared out, and how long a kernel may run while others wait."""

    enforce: bool = True
    max_kernel_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Observing:
    """gpumanager: GPUManager's metrics too.  record: folder of the record of usage, "" for the
    state folder; record_bytes: its bound, in memory and on disk each.
    """

    gpumanager: bool = False
    record: str = ""
    record_bytes: int = 16 << 20


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Whether strangers may measure the network to this server, and how many bytes per second all
    of them together may move in the long run.
    """

    answer: bool = True
    bytes_per_second: int = 512_000_000


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything the daemon needs to start.

    default_memory: what a lease gets that does not say, as "2GiB" or as "25%" of its device.
    socket: open one for this machine's programs, unless `listen` has a Unix socket.
    allow_weak: measures of isolation that the operator does without (core/isolation.py).
    log_bytes: what is kept of a worker's output.  cgroup: where workers get memory cgroups, "auto",
    "off" or a folder.  state: a folder, "" for the one of its address.
    pools: name of a pool -> ordinals of its devices.
    """

    listen: tuple[Endpoint, ...]
    devices: tuple[DeviceSpec, ...]
    insecure: bool = False
    socket: bool = True
    metrics: TcpEndpoint | None = None
    sandbox: bool = True
    allow_weak: frozenset[str] = frozenset()
    log_bytes: int = 64 << 10
    cgroup: str = "auto"
    default_memory: str = "25%"
    state: str = ""
    enforcement: Enforcement = field(default_factory=lambda: Enforcement())
    emulated: Emulated = field(default_factory=lambda: Emulated())
    observing: Observing = field(default_factory=lambda: Observing())
    probe: ProbeOptions = field(default_factory=lambda: ProbeOptions())
    identity: Identity = field(default_factory=Identity)
    tls: Tls = field(default_factory=Tls)
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    tenants: dict[str, TenantPolicy] = field(default_factory=dict)
    pools: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def identifies(self) -> bool:
        """True if clients on other machines can show who they are."""
        return bool(self.identity.tokens or self.tls.client_ca)

    @property
    def watched(self) -> bool:
        """True if there can be a token of an operator."""
        return bool(self.identity.tokens and self.identity.operators)


def default_memory_bytes(config: ServerConfig, device_bytes: int) -> int:
    """Returns what a lease gets on a device of this size if nobody says; ConfigError if odd."""
    try:
        asked = parse_bytes(config.default_memory, device_bytes)
    except UsageError as error:
        raise ConfigError(f"leases.memory: {error}") from None
    if asked <= 0:
        raise ConfigError(f"leases.memory is {config.default_memory!r}: a lease needs some memory")
    return min(asked, device_bytes)


def pool_of(config: ServerConfig, ordinal: int) -> str:
    """Returns the pool of a device; "public" if none lists it."""
    return next((name for name, there in config.pools.items() if ordinal in there), DEFAULT_POOL)
