"""What the operator sets: command line over configuration file over defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rgpu_common.config import Table, read_toml
from rgpu_common.endpoints import Endpoint, TcpEndpoint, parse_endpoint
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.units import MAX_BYTES, parse_bytes
from rgpu_server.core.model import Policy, TenantPolicy

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_LISTEN = "127.0.0.1:7700"
DEFAULT_DEVICE = "emulated"
EMULATED_BYTES = 8 << 30
MAX_DEVICES = 16
# A copy travels in frames of at most this much: with less in flight none could be sent.
MIN_CREDIT_BYTES = 1 << 20

_CUDA = re.compile(r"cuda(?::([0-9]{1,3}))?")
_TIMING = re.compile(r"normal|hostile(?::[0-9]{1,18})?")
_DEVICES = "emulated, emulated:8GiB, cuda or cuda:0"


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
    """What strangers may take before they have a session, and what a session may have in flight."""

    handshake_seconds: float = 10.0
    handshakes: int = 128
    control_connections: int = 256
    stream_credits: int = 512
    stream_credit_bytes: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Emulated:
    """How emulated devices run.  cache: a folder, "" for one that ends with the server."""

    timing: str = "normal"
    cache: str = ""
    launch_seconds: int = 60


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """Everything the daemon needs to start."""

    listen: tuple[Endpoint, ...]
    devices: tuple[DeviceSpec, ...]
    insecure: bool = False
    metrics: TcpEndpoint | None = None
    sandbox: bool = True
    log_bytes: int = 64 << 10
    default_memory: str = "25%"
    emulated: Emulated = field(default_factory=lambda: Emulated())
    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    tenants: dict[str, TenantPolicy] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says; None leaves it to the file."""

    listen: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    insecure: bool | None = None
    metrics: str | None = None


def load_config(path: Path | None, overrides: Overrides) -> ServerConfig:
    """Reads and checks everything.

    Raises:
        UsageError: with the key or option, its value and what is accepted.
    """
    root = read_toml(path) if path is not None else Table({}, "defaults")
    listen = tuple(root.texts("listen", [DEFAULT_LISTEN]))
    devices = tuple(root.texts("devices", [DEFAULT_DEVICE]))
    insecure = root.flag("insecure", False)
    metrics = root.text("metrics", "")
    leases, sessions = root.table("leases"), root.table("sessions")
    workers, emulated = root.table("workers"), root.table("emulated")
    config = ServerConfig(
        listen=_listen(root, overrides.listen, listen),
        devices=_asked_devices(root, overrides.devices, devices),
        insecure=insecure if overrides.insecure is None else overrides.insecure,
        metrics=_metrics(metrics if overrides.metrics is None else overrides.metrics),
        default_memory=_default_memory(leases),
        policy=_policy(leases, sessions, workers),
        limits=_limits(sessions),
        sandbox=workers.flag("sandbox", True),
        log_bytes=workers.size("log", "64KiB"),
        emulated=_emulated(emulated),
        tenants={name: _tenant(table) for name, table in root.table("tenants").tables()},
    )
    for table in (leases, sessions, workers, emulated, root):
        table.done()
    _check(config)
    return config


def parse_devices(texts: tuple[str, ...]) -> tuple[DeviceSpec, ...]:
    """Returns the devices that `texts` ask for, in order; UsageError if one is not understood."""
    if not 1 <= len(texts) <= MAX_DEVICES:
        raise UsageError(f"a server has 1 to {MAX_DEVICES} devices, asked for are {len(texts)}")
    return tuple(_device(text) for text in texts)


def default_memory_bytes(config: ServerConfig, device_bytes: int) -> int:
    """Returns what a lease gets on a device of this size if nobody says; ConfigError if odd."""
    try:
        asked = parse_bytes(config.default_memory, device_bytes)
    except UsageError as error:
        raise ConfigError(f"leases.memory: {error}") from None
    if asked <= 0:
        raise ConfigError(f"leases.memory is {config.default_memory!r}: a lease needs some memory")
    return min(asked, device_bytes)


def _listen(
    root: Table, said: tuple[str, ...] | None, written: tuple[str, ...]
) -> tuple[Endpoint, ...]:
    if said:
        return tuple(parse_endpoint(text) for text in said)
    try:
        return tuple(parse_endpoint(text) for text in written)
    except UsageError as error:
        raise root.refuse("listen", str(error)) from None


def _asked_devices(
    root: Table, said: tuple[str, ...] | None, written: tuple[str, ...]
) -> tuple[DeviceSpec, ...]:
    if said:
        return parse_devices(said)
    try:
        return parse_devices(written)
    except UsageError as error:
        raise root.refuse("devices", str(error)) from None


def _default_memory(leases: Table) -> str:
    text = leases.size_text("memory", "25%")
    if parse_bytes(text, MAX_BYTES) == 0:
        raise leases.refuse("memory", f"{text!r} is nothing: a lease needs some memory")
    return text


def _emulated(table: Table) -> Emulated:
    low = Emulated()
    timing = table.text("timing", low.timing)
    if not _TIMING.fullmatch(timing):
        raise table.refuse("timing", f"{timing!r} is not normal, hostile or hostile:SEED")
    return Emulated(
        timing=timing,
        cache=table.text("cache", low.cache),
        launch_seconds=table.integer("launch_seconds", low.launch_seconds, 1, 7 * 86400),
    )


def _device(text: str) -> DeviceSpec:
    kind, colon, size = text.partition(":")
    if kind == "emulated":
        memory = _emulated_bytes(text, size) if colon else EMULATED_BYTES
        if memory < 1 << 20:
            raise UsageError(f"{text!r}: an emulated device needs at least 1MiB")
        return DeviceSpec("emulated", memory_bytes=memory)
    match = _CUDA.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a device: write {_DEVICES}")
    return DeviceSpec("cuda", ordinal=int(match[1] or 0))


def _emulated_bytes(text: str, size: str) -> int:
    try:
        return parse_bytes(size)
    except UsageError as error:
        raise UsageError(f"{text!r} is not a device: {error}") from None


def _policy(leases: Table, sessions: Table, workers: Table) -> Policy:
    low = Policy()
    request = leases.share("share", 0.0)
    limit = leases.share("limit", 1.0)
    if limit == 0 or request > limit:
        raise leases.refuse("limit", "must be above 0 and not below leases.share")
    return Policy(
        max_sessions=sessions.integer("max", low.max_sessions, 1, 100_000),
        default_share_request_ppm=request,
        default_share_limit_ppm=limit,
        ttl_seconds=leases.seconds("ttl_seconds", low.ttl_seconds, 0.1, low.max_ttl_seconds),
        grace_seconds=leases.seconds("grace_seconds", low.grace_seconds, 0, 3600),
        settle_seconds=leases.seconds("settle_seconds", low.settle_seconds, 0, 60),
        memory_seconds=leases.seconds("remember_seconds", low.memory_seconds, 0, 7 * 86400),
        open_seconds=sessions.seconds("open_seconds", low.open_seconds, 0.1, 600),
        end_seconds=sessions.seconds("end_seconds", low.end_seconds, 0.1, 60),
        warm_workers=workers.integer("warm", low.warm_workers, 0, 1000),
    )


def _limits(sessions: Table) -> Limits:
    low = Limits()
    credit_bytes = sessions.size("stream_credit_bytes", low.stream_credit_bytes)
    if credit_bytes < MIN_CREDIT_BYTES:
        raise sessions.refuse("stream_credit_bytes", "must be at least 1MiB, the size of a frame")
    return Limits(
        handshake_seconds=sessions.seconds("handshake_seconds", low.handshake_seconds, 0.1, 60),
        handshakes=sessions.integer("handshakes", low.handshakes, 1, 10_000),
        control_connections=sessions.integer("api_connections", low.control_connections, 1, 10_000),
        stream_credits=sessions.integer("stream_credits", low.stream_credits, 1, 1 << 20),
        stream_credit_bytes=credit_bytes,
    )


def _tenant(table: Table) -> TenantPolicy:
    policy = TenantPolicy(
        sessions=table.optional_integer("sessions", 0, 100_000),
        memory_bytes=table.optional_size("memory"),
    )
    table.done()
    return policy


def _metrics(text: str) -> TcpEndpoint | None:
    if not text:
        return None
    endpoint = parse_endpoint(text)
    if not isinstance(endpoint, TcpEndpoint) or not text.endswith(f":{endpoint.port}"):
        # Without a port it would be the one that sessions use.
        raise UsageError(f"metrics: {text!r} is not HOST:PORT")
    return endpoint


def _check(config: ServerConfig) -> None:
    if not config.listen:
        raise ConfigError("listen: the server needs at least one address to listen on")
    wide = [e for e in (*config.listen, config.metrics) if e is not None and not e.loopback]
    if wide and not config.insecure:
        raise UsageError(
            f"{wide[0]} can be reached from other machines and clients are not identified yet; "
            "listen on 127.0.0.1 or a Unix socket, or say --insecure if the network is trusted"
        )
