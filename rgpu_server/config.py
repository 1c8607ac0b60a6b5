"""The server's configuration: what the daemon is given to start with.

Each field that is declared with `key` is a row of the table of keys (`rgpu_common.keys`): the
reader (`config_reader`), the reference page (`config_page`) and `rgpu serve --help` follow it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.key_kinds import Flag, Folder, Integer, Seconds, Size, SizeOrPart
from rgpu_common.keys import Option, key, part
from rgpu_common.units import MAX_BYTES, parse_bytes
from rgpu_server.agent.settings import Cluster
from rgpu_server.config_kinds import (
    Cgroup,
    Devices,
    DeviceSpec,
    Each,
    Listeners,
    Measures,
    MetricsAddress,
    Pools,
    Timing,
)
from rgpu_server.core.model import DEFAULT_POOL
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.identity.settings import Identity, Tls
from rgpu_server.web.settings import Web

if TYPE_CHECKING:
    from rgpu_common.endpoints import Endpoint

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_DAY = 86400
MIN_COMPILER_BYTES = _GIB


@dataclass(frozen=True, slots=True)
class Limits:
    """What strangers may take before they have a session, and what a session may have in flight."""

    handshake_seconds: float = key(
        "sessions.handshake_seconds", Seconds(0.1, 60), 10.0,
        "How long the handshake of a connection may take.",
    )  # fmt: skip
    handshakes: int = key(
        "sessions.handshakes", Integer(1, 10_000), 128,
        "How many connections may be in their handshake at once.",
    )  # fmt: skip
    control_connections: int = key(
        "sessions.api_connections", Integer(1, 10_000), 256,
        "How many connections to the API there may be at once; the server's own user has 8 more. "
        "Newcomers come in beside them, and take a place with their first accepted call. When all "
        "are taken, the oldest connection of the tenant with the most is closed for one of a "
        "tenant that has at least two fewer. No connection stays without an accepted call for "
        "longer than `sessions.handshake_seconds`.",
    )  # fmt: skip
    gateway_connections: int = key(
        "sessions.gateway_connections", Integer(1, 100_000), 1024,
        "How many connections over `tls:` there may be at once.",
    )  # fmt: skip
    stream_credits: int = key(
        "sessions.stream_credits", Integer(1, 1 << 20), 512,
        "How many commands may be in flight in one stream.",
    )  # fmt: skip
    stream_credit_bytes: int = key(
        # A copy travels in frames of at most 1 MiB: with less in flight none could be sent.
        "sessions.stream_credit_bytes",
        Size(_MIB, remedy="must be at least 1MiB, the size of a frame"), 64 * _MIB,
        "How many copied bytes may be in flight in one stream.",
    )  # fmt: skip
    resume_grace_seconds: float = key(
        "sessions.resume_grace_seconds", Seconds(0, 3600), 10.0,
        "How long a session may be without a connection after a cut; with 0 it ends at once.",
    )  # fmt: skip
    compression: bool = key(
        "sessions.compression", Flag(), True,
        "Sessions over networks may be compressed where that is faster, if the client wishes it "
        "([compression](../explanation/transports.md#compression)).",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class CompilerLimits:
    """What the PTX compiler of one tenant may take, all its sessions together."""

    processes: int = key(
        "emulated.compiler_processes", Integer(1, 64), 2,
        "How many processes compile for one tenant at a time: PTX, and as many CUDA C++ of array "
        "programs.",
    )  # fmt: skip
    memory_bytes: int = key(
        "emulated.compiler_memory", Size(), 4 * _GIB,
        "How much memory the compiler of one tenant may use, for all its sessions together: at "
        "least 1 GiB for each process. Three quarters of it are for the processes.",
    )  # fmt: skip
    seconds: float = key(
        "emulated.compiler_seconds", Seconds(1, 600), 60.0,
        "How much processor time the loading of a module or the compiling of a kernel may take. "
        "After 600 s it ends in any case.",
    )  # fmt: skip
    burst_seconds: float = key(
        "emulated.compiler_burst_seconds", Seconds(1, 7 * _DAY), 300.0,
        "How much processor time one tenant may compile at ordinary priority: PTX, and as much "
        "CUDA C++ of array programs. This time fills again at a quarter of a processor. When it "
        "is used up, one process at a time compiles with what nobody else on the machine wants.",
    )  # fmt: skip
    cache_bytes: int = key(
        "emulated.cache_size", Size(_MIB, MAX_BYTES, "must be at least 1MiB"), _GIB,
        "How many bytes of compiled kernels are kept for one tenant; the oldest are removed first.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Emulated:
    """How emulated devices run.  cache: a folder, "" for the one of the server's address."""

    timing: str = key(
        "emulated.timing", Timing(), "normal",
        "Whether an emulated device is as fast as it can be, or delays and reorders work wherever "
        "a real device may.",
    )  # fmt: skip
    cache: str = key(
        "emulated.cache", Folder(), "",
        "Where compiled kernels are kept, in one folder for each tenant. The server makes the "
        "folder if it is missing. Name one on a disk: the server warns of a file system in "
        "memory.",
        unset="by the server's port, below `/var/cache/rgpu` (root) or "
        "`$XDG_CACHE_HOME/rgpu/kernels` (`~/.cache`); a server on port 0 removes its folder when "
        "it ends",
    )  # fmt: skip
    launch_seconds: int = key(
        "emulated.launch_seconds", Integer(1, 7 * _DAY), 60,
        "After how many seconds a running kernel is stopped with `CUDA_ERROR_LAUNCH_TIMEOUT`.",
    )  # fmt: skip
    compiler: CompilerLimits = part(CompilerLimits)


@dataclass(frozen=True, slots=True)
class Enforcement:
    """Whether device time is shared out, and how long a kernel may run while others wait."""

    enforce: bool = key(
        "quota.enforce", Flag(), True,
        "The server shares out device time; with `false` all sessions use the device at once.",
    )  # fmt: skip
    max_kernel_seconds: float = key(
        "quota.max_kernel_seconds", Seconds(0.1, _DAY), 60.0,
        "A session whose kernel runs for longer while others wait is ended with "
        "`CUDA_ERROR_LAUNCH_TIMEOUT`.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Observing:
    """What the server shows and records.  record: a folder, "" for the state folder."""

    gpumanager: bool = key(
        "metrics.gpumanager", Flag(), False,
        "Serve [GPUManager's metrics](../how-to/observe.md#gpumanagers-names) too.",
    )  # fmt: skip
    record: str = key(
        "record.folder", Folder(), "", "A folder in which the record of usage is kept for good.",
        unset="the state folder",
    )  # fmt: skip
    record_bytes: int = key(
        "record.size", Size(64 * _KIB, _GIB, "must be between 64KiB and 1GiB"), 16 * _MIB,
        "How large the [record of usage](../how-to/observe.md#rgpu-quota-report) may become, in "
        "memory and on disk each.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProbeOptions:
    """Whether, and how much, strangers may measure the network to this server."""

    answer: bool = key(
        "probe.answer", Flag(), True,
        "Clients without an access token may [measure the network](../explanation/netprobe.md"
        "#the-responder) to this server. With `false` they connect to the address that they were "
        "given.",
    )  # fmt: skip
    bytes_per_second: int = key(
        "probe.bytes_per_second",
        Size(_MIB, 1_000_000_000, "must be between 1MiB and 1000000000"), 512_000_000,
        "How many bytes per second all these measurements together may move on average. One "
        "address may move a quarter of that, and 16 seconds' worth at once.",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything the daemon needs to start.

    devices: () leaves the choice to the reader.  default_memory: "2GiB", or "25%" of a device.
    state: a folder, "" for the one of the server's address.
    """

    listen: tuple[Endpoint, ...] = key(
        "listen", Listeners(), (TcpEndpoint("127.0.0.1", 7700),),
        "The addresses on which the server listens.",
        option=Option("--listen", "ADDRESS", repeated=True),
    )  # fmt: skip
    devices: tuple[DeviceSpec, ...] = key(
        "devices", Devices(), (), "The devices that the server serves.",
        option=Option("--device", "DEVICE", repeated=True),
        unset="this machine's GPUs, else `emulated`",
    )  # fmt: skip
    insecure: bool = key(
        "insecure", Flag(), False,
        "Believe clients on other machines that show neither an access token nor a certificate.",
        option=Option("--insecure"),
    )  # fmt: skip
    socket: bool = key(
        "server.socket", Flag(), True,
        "Open a Unix socket for the programs of this machine, unless `listen` names one.",
        option=Option(
            "--no-socket",
            value=False,
            note="Open no Unix socket for the programs of this machine; by default one is opened "
            "unless --listen names one.",
        ),
    )  # fmt: skip
    metrics: TcpEndpoint | None = key(
        "metrics.listen", MetricsAddress(), None,
        "Serve Prometheus metrics (`/metrics`) and `/health` at this address.",
        option=Option("--metrics", "HOST:PORT"), unset="none", inline=True,
    )  # fmt: skip
    sandbox: bool = key(
        "workers.sandbox", Flag(), True,
        "Run workers without privileges. `false` is for debugging, and is reported as weak "
        "isolation.",
    )  # fmt: skip
    allow_weak: frozenset[str] = key(
        "isolation.allow_weak", Measures(), frozenset(),
        "Serve although this machine does not give processes these measures of isolation.",
        option=Option("--allow-weak-isolation", "MEASURE,..."),
    )  # fmt: skip
    log_bytes: int = key(
        "workers.log", Size(), 64 * _KIB,
        "How many bytes of a worker's output are copied to the log.",
    )  # fmt: skip
    cgroup: str = key(
        "workers.cgroup", Cgroup(), "auto",
        'Where each worker gets a memory cgroup: `"auto"` (where systemd has delegated one to the '
        'server), `"off"`, or a folder '
        "([ceiling](../explanation/quotas-memory.md"
        "#the-hard-ceiling-of-a-worker)).",
    )  # fmt: skip
    default_memory: str = key(
        "leases.memory", SizeOrPart(), "25%", "The memory of a lease that does not ask for a size."
    )
    state: str = key(
        "server.state", Folder(), "",
        "Where to keep what a restart needs: one folder for each server.",
        option=Option("--state-dir", "FOLDER"),
        unset="by port, below `/run/rgpu` or `$XDG_RUNTIME_DIR/rgpu`",
    )  # fmt: skip
    enforcement: Enforcement = part(Enforcement)
    emulated: Emulated = part(Emulated)
    observing: Observing = part(Observing)
    web: Web = part(Web)
    probe: ProbeOptions = part(ProbeOptions)
    identity: Identity = part(Identity)
    tls: Tls = part(Tls)
    cluster: Cluster = part(Cluster)
    policy: Policy = part(Policy)
    limits: Limits = part(Limits)
    tenants: dict[str, TenantPolicy] = key(
        "tenants", Each(TenantPolicy), {}, "What one tenant may have."
    )
    pools: dict[str, tuple[int, ...]] = key(
        "pools", Pools(), {},
        "The devices of the pool NAME. A device is in one pool, in `public` if no list has it. "
        "`[]` is a pool that has no device of this server.", unset="none",
    )  # fmt: skip

    @property
    def identifies(self) -> bool:
        """True if clients on other machines can show who they are."""
        identity = self.identity
        claims = identity.claim_key or identity.pod_keys
        return bool(identity.tokens or self.tls.client_ca or claims)

    @property
    def watched(self) -> bool:
        """True if there can be an access token of an operator."""
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
