"""What the operator sets: command line over configuration file over defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rgpu_common.config import Table, read_toml
from rgpu_common.endpoints import Endpoint, TcpEndpoint, parse_endpoint
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.units import parse_bytes
from rgpu_server.core.model import Policy, TenantPolicy

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_LISTEN = "127.0.0.1:7700"
DEFAULT_DEVICE = "emulated"
EMULATED_BYTES = 8 << 30
MAX_DEVICES = 16

_CUDA = re.compile(r"cuda(?::([0-9]{1,3}))?")
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
class ServerConfig:
    """Everything the daemon needs to start."""

    listen: tuple[Endpoint, ...]
    devices: tuple[DeviceSpec, ...]
    insecure: bool = False
    metrics: TcpEndpoint | None = None
    sandbox: bool = True
    log_bytes: int = 64 << 10
    default_memory: str = "25%"
    timing: str = "normal"
    cache: str = ""
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
        listen=tuple(parse_endpoint(text) for text in overrides.listen or listen),
        devices=parse_devices(overrides.devices or devices),
        insecure=insecure if overrides.insecure is None else overrides.insecure,
        metrics=_metrics(metrics if overrides.metrics is None else overrides.metrics),
        default_memory=leases.text("memory", "25%"),
        policy=_policy(leases, sessions, workers),
        limits=_limits(sessions),
        sandbox=workers.flag("sandbox", True),
        log_bytes=workers.size("log", "64KiB"),
        timing=emulated.text("timing", "normal"),
        cache=emulated.text("cache", ""),
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


def _device(text: str) -> DeviceSpec:
    kind, colon, size = text.partition(":")
    if kind == "emulated":
        memory = parse_bytes(size) if colon else EMULATED_BYTES
        if memory < 1 << 20:
            raise UsageError(f"{text!r}: an emulated device needs at least 1MiB")
        return DeviceSpec("emulated", memory_bytes=memory)
    match = _CUDA.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is not a device: write {_DEVICES}")
    return DeviceSpec("cuda", ordinal=int(match[1] or 0))


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
    return Limits(
        handshake_seconds=sessions.seconds("handshake_seconds", low.handshake_seconds, 0.1, 60),
        handshakes=sessions.integer("handshakes", low.handshakes, 1, 10_000),
        control_connections=sessions.integer("api_connections", low.control_connections, 1, 10_000),
        stream_credits=sessions.integer("stream_credits", low.stream_credits, 1, 1 << 20),
        stream_credit_bytes=sessions.size("stream_credit_bytes", low.stream_credit_bytes),
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
    if not isinstance(endpoint, TcpEndpoint):
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
