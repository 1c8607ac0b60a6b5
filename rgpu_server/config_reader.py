"""Reads what the operator sets: command line over configuration file over defaults."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rgpu_common.config import Table, read_toml
from rgpu_common.endpoints import (
    Endpoint,
    TcpEndpoint,
    parse_endpoint,
    parse_listener,
    speaks_tls,
)
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, POLICIES, SharePolicy, parse_policy
from rgpu_common.units import MAX_BYTES, format_bytes, parse_bytes
from rgpu_server.config import (
    CompilerLimits,
    DeviceSpec,
    Emulated,
    Enforcement,
    Limits,
    Observing,
    ProbeOptions,
    ServerConfig,
)
from rgpu_server.core.isolation import OPTIONAL
from rgpu_server.core.model import DEFAULT_POOL, Amount, Policy, RefusedError, TenantPolicy
from rgpu_server.core.shares import settle
from rgpu_server.identity.settings import identity_of, tls_of, with_default_tokens
from rgpu_server.identity.tokens import default_tokens_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DEFAULT_LISTEN = "127.0.0.1:7700"
EMULATED_BYTES = 8 << 30
MAX_DEVICES = 16
# Its addresses, with the gaps between allocations, lie in a band of 1 TiB.
MAX_EMULATED_BYTES = 512 << 30
# A copy travels in frames of at most this much: with less in flight none could be sent.
MIN_CREDIT_BYTES = 1 << 20
MIN_COMPILER_BYTES = 1 << 30
MIN_CACHE_BYTES = 1 << 20
MIN_RECORD_BYTES = 64 << 10
MAX_RECORD_BYTES = 1 << 30
MIN_PROBE_BYTES = 1 << 20
MAX_PROBE_BYTES = 1_000_000_000

_CUDA = re.compile(r"cuda(?::([0-9]{1,3}))?")
_TIMING = re.compile(r"normal|hostile(?::[0-9]{1,18})?")
_ABSENT = ("unlimited", "none")
_DEVICES = "emulated, emulated:8GiB, cuda or cuda:0"


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line says; None leaves it to the file."""

    listen: tuple[str, ...] | None = None
    devices: tuple[str, ...] | None = None
    insecure: bool | None = None
    metrics: str | None = None
    state: str | None = None
    tokens: str | None = None
    socket: bool | None = None
    allow_weak: str | None = None


def load_config(
    path: Path | None,
    overrides: Overrides,
    default_devices: Callable[[], tuple[str, ...]] = lambda: ("emulated",),
) -> ServerConfig:
    """Reads and checks everything.

    default_devices: is asked where neither the command line nor the file names any.

    Raises:
        UsageError: with the key or option, its value and what is accepted.
    """
    root = read_toml(path) if path is not None else Table({}, "defaults")
    listen = tuple(root.texts("listen", [DEFAULT_LISTEN]))
    devices = tuple(root.texts("devices", [])) if root.has("devices") else None
    if not overrides.devices and devices is None:
        devices = default_devices()
    insecure = root.flag("insecure", False)
    metrics, gpumanager = _metrics_keys(root)
    leases, sessions = root.table("leases"), root.table("sessions")
    workers, emulated = root.table("workers"), root.table("emulated")
    server, quota = root.table("server"), root.table("quota")
    isolation = root.table("isolation")
    state = server.text("state", "")
    config = ServerConfig(
        listen=_listen(root, overrides.listen, listen),
        devices=_asked_devices(root, overrides.devices, devices or ()),
        socket=server.flag("socket", True) if overrides.socket is None else overrides.socket,
        insecure=insecure if overrides.insecure is None else overrides.insecure,
        metrics=_metrics(metrics if overrides.metrics is None else overrides.metrics),
        default_memory=_default_memory(leases),
        policy=_policy(leases, sessions, workers, quota),
        pools=_pools(root.table("pools")),
        limits=_limits(sessions),
        sandbox=workers.flag("sandbox", True),
        allow_weak=_allow_weak(isolation, overrides.allow_weak),
        log_bytes=workers.size("log", "64KiB"),
        cgroup=workers.text("cgroup", "auto"),
        state=state if overrides.state is None else overrides.state,
        enforcement=_enforcement(quota),
        emulated=_emulated(emulated),
        observing=_observing(root.table("record"), gpumanager),
        probe=_probe(root.table("probe")),
        tls=tls_of(root.table("tls")),
        identity=identity_of(root.table("identity"), overrides.tokens),
        tenants={name: _tenant(table) for name, table in root.table("tenants").tables()},
    )
    for table in (leases, sessions, workers, emulated, server, quota, isolation, root):
        table.done()
    if not config.insecure and not all(endpoint.loopback for endpoint in config.listen):
        config = replace(config, identity=with_default_tokens(config.identity, config.tls))
    _check(config)
    return config


def parse_devices(texts: tuple[str, ...]) -> tuple[DeviceSpec, ...]:
    """Returns the devices that `texts` ask for, in order; UsageError if one is not understood."""
    if not 1 <= len(texts) <= MAX_DEVICES:
        raise UsageError(f"a server has 1 to {MAX_DEVICES} devices, asked for are {len(texts)}")
    return tuple(_device(text) for text in texts)


def _listen(
    root: Table, said: tuple[str, ...] | None, written: tuple[str, ...]
) -> tuple[Endpoint, ...]:
    if said:
        return tuple(parse_listener(text) for text in said)
    try:
        return tuple(parse_listener(text) for text in written)
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


def _enforcement(table: Table) -> Enforcement:
    low = Enforcement()
    return Enforcement(
        enforce=table.flag("enforce", low.enforce),
        max_kernel_seconds=table.seconds("max_kernel_seconds", low.max_kernel_seconds, 0.1, 86400),
    )


def _allow_weak(table: Table, said: str | None) -> frozenset[str]:
    """The measures of isolation that the operator does without, by name."""
    written = table.texts("allow_weak", [])
    if said is None:
        for name in written:
            if name not in OPTIONAL:
                raise table.refuse("allow_weak", _no_measure(name))
        return frozenset(written)
    names = [name.strip() for name in said.split(",") if name.strip()]
    for name in names:
        if name not in OPTIONAL:
            raise UsageError(f"--allow-weak-isolation: {_no_measure(name)}")
    return frozenset(names)


def _no_measure(name: str) -> str:
    return f"{name!r} is no measure that a server can do without: {', '.join(OPTIONAL)}"


def _emulated(table: Table) -> Emulated:
    low = Emulated()
    timing = table.text("timing", low.timing)
    if not _TIMING.fullmatch(timing):
        raise table.refuse("timing", f"{timing!r} is not normal, hostile or hostile:SEED")
    return Emulated(
        timing=timing,
        cache=table.text("cache", low.cache),
        launch_seconds=table.integer("launch_seconds", low.launch_seconds, 1, 7 * 86400),
        compiler=_compiler(table),
    )


def _compiler(table: Table) -> CompilerLimits:
    low = CompilerLimits()
    processes = table.integer("compiler_processes", low.processes, 1, 64)
    memory = table.size("compiler_memory", low.memory_bytes)
    if memory < processes * MIN_COMPILER_BYTES:
        raise table.refuse("compiler_memory", "must be at least 1GiB for each process")
    cache_bytes = table.size("cache_size", low.cache_bytes)
    if not MIN_CACHE_BYTES <= cache_bytes <= MAX_BYTES:
        raise table.refuse("cache_size", "must be at least 1MiB")
    seconds = table.seconds("compiler_seconds", low.seconds, 1, 600)
    burst = table.seconds("compiler_burst_seconds", low.burst_seconds, 1, 7 * 86400)
    return CompilerLimits(processes, memory, seconds, burst, cache_bytes)


def _device(text: str) -> DeviceSpec:
    kind, colon, size = text.partition(":")
    if kind == "emulated":
        memory = _emulated_bytes(text, size) if colon else EMULATED_BYTES
        if memory < 1 << 20:
            raise UsageError(f"{text!r}: an emulated device needs at least 1MiB")
        if memory > MAX_EMULATED_BYTES:
            raise UsageError(
                f"{text!r}: an emulated device has at most {format_bytes(MAX_EMULATED_BYTES)}"
            )
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


def _policy(leases: Table, sessions: Table, workers: Table, quota: Table) -> Policy:
    low = Policy()
    words, request, limit = _default_shares(leases)
    return Policy(
        default_policy=words,
        max_tenants=quota.integer("max_tenants", low.max_tenants, 0, 100_000),
        max_leases=leases.integer("max", low.max_leases, 0, 100_000),
        max_idle_leases=leases.integer("max_empty", low.max_idle_leases, 0, 100_000),
        absent_tenant_unlimited=quota.choice("absent_tenant", "unlimited", _ABSENT) == _ABSENT[0],
        absent_model_unlimited=quota.choice("absent_model", "none", _ABSENT) == _ABSENT[0],
        reclaim_memory=quota.flag("reclaim_memory", low.reclaim_memory),
        reclaim_seconds=quota.seconds("reclaim_seconds", low.reclaim_seconds, 0, 86400),
        claim_seconds=quota.seconds("claim_seconds", low.claim_seconds, 0, 86400),
        max_sessions=sessions.integer("max", low.max_sessions, 1, 100_000),
        tenant_sessions=sessions.optional_integer("per_tenant", 1, 100_000),
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


def _default_shares(leases: Table) -> tuple[SharePolicy, int, int]:
    """Policy, share and limit of a lease that does not say."""
    # A limit that the file does not name is the policy's to dictate.
    limited = leases.has("limit")
    request, limit = leases.share("share", 0.0), leases.share("limit", 1.0)
    if limit == 0 or request > limit:
        raise leases.refuse("limit", "must be above 0 and not below leases.share")
    words = parse_policy(leases.choice("policy", "none", POLICIES))
    if words is SharePolicy.FIXED and not request:
        raise leases.refuse("policy", "fixed needs a share above 0: leases.share")
    try:
        settle(words, request, limit if limited else None)
    except RefusedError as error:
        raise leases.refuse("policy", f"{error} (leases.share, leases.limit)") from None
    return words, request, limit


def _limits(sessions: Table) -> Limits:
    low = Limits()
    credit_bytes = sessions.size("stream_credit_bytes", low.stream_credit_bytes)
    if credit_bytes < MIN_CREDIT_BYTES:
        raise sessions.refuse("stream_credit_bytes", "must be at least 1MiB, the size of a frame")
    return Limits(
        handshake_seconds=sessions.seconds("handshake_seconds", low.handshake_seconds, 0.1, 60),
        handshakes=sessions.integer("handshakes", low.handshakes, 1, 10_000),
        control_connections=sessions.integer("api_connections", low.control_connections, 1, 10_000),
        gateway_connections=sessions.integer(
            "gateway_connections", low.gateway_connections, 1, 100_000
        ),
        stream_credits=sessions.integer("stream_credits", low.stream_credits, 1, 1 << 20),
        stream_credit_bytes=credit_bytes,
        resume_grace_seconds=sessions.seconds(
            "resume_grace_seconds", low.resume_grace_seconds, 0, 3600
        ),
        compression=sessions.flag("compression", low.compression),
    )


def _tenant(table: Table) -> TenantPolicy:
    policy = TenantPolicy(
        sessions=table.optional_integer("sessions", 0, 100_000),
        memory_bytes=table.optional_size("memory"),
        share_ppm=table.optional_total_share("share"),
        max_priority=table.integer("max_priority", 0, 0, MAX_PRIORITY),
        max_weight=table.integer("max_weight", 1, 1, MAX_WEIGHT),
        pools=tuple(table.texts("pools", [])),
        quota=_quota(table.table("quota")) if table.has("quota") else None,
        borrow=table.flag("borrow", False),
        borrow_limit=(
            table.optional_total_share("borrow_share"),
            table.optional_size("borrow_memory"),
        ),
        lend=table.flag("lend", True),
        leases=table.optional_integer("leases", 0, 100_000),
    )
    table.done()
    return policy


def _quota(table: Table) -> dict[str, Amount]:
    """Model of device -> what the tenant owns of its devices."""
    owned = {}
    for model, row in table.tables():
        owned[model] = Amount(row.optional_total_share("share") or 0, row.size("memory", 0))
        row.done()
    return owned


def _pools(table: Table) -> dict[str, tuple[int, ...]]:
    pools = {name: tuple(table.integers(name)) for name in table.names()}
    seen: dict[int, str] = {}
    for name, ordinals in pools.items():
        for ordinal in ordinals:
            if seen.setdefault(ordinal, name) != name:
                reason = f"device {ordinal} is in the pool {seen[ordinal]!r} already"
                raise table.refuse(name, reason)
    return pools


def _metrics_keys(root: Table) -> tuple[str, bool]:
    """`metrics = "HOST:PORT"`, or a table with `listen` and more."""
    if not root.is_table("metrics"):
        return root.text("metrics", ""), False
    table = root.table("metrics")
    keys = table.text("listen", ""), table.flag("gpumanager", False)
    table.done()
    return keys


def _observing(table: Table, gpumanager: bool) -> Observing:
    low = Observing()
    observing = Observing(
        gpumanager=gpumanager,
        record=table.text("folder", low.record),
        record_bytes=table.size("size", low.record_bytes),
    )
    table.done()
    if not MIN_RECORD_BYTES <= observing.record_bytes <= MAX_RECORD_BYTES:
        raise table.refuse("size", "must be between 64KiB and 1GiB")
    return observing


def _probe(table: Table) -> ProbeOptions:
    low = ProbeOptions()
    options = ProbeOptions(
        answer=table.flag("answer", low.answer),
        bytes_per_second=table.size("bytes_per_second", low.bytes_per_second),
    )
    table.done()
    if not MIN_PROBE_BYTES <= options.bytes_per_second <= MAX_PROBE_BYTES:
        raise table.refuse("bytes_per_second", "must be between 1MiB and 1000000000")
    return options


def _metrics(text: str) -> TcpEndpoint | None:
    if not text:
        return None
    endpoint = parse_endpoint(text)
    if type(endpoint) is not TcpEndpoint or not text.endswith(f":{endpoint.port}"):
        # Without a port it would be the one that sessions use.
        raise UsageError(f"metrics: {text!r} is not HOST:PORT")
    return endpoint


def _check_pools(config: ServerConfig) -> None:
    """A name that is mistyped would only be noticed by the tenant, who finds no device."""
    known = (DEFAULT_POOL, *config.pools)
    for name, tenant in config.tenants.items():
        for pool in tenant.pools:
            if pool not in known:
                raise ConfigError(
                    f"tenants.{name}.pools: there is no pool {pool!r}, only {', '.join(known)}: "
                    "correct the name, or add it to [pools] (as [] if no device here is in it)"
                )


def _check(config: ServerConfig) -> None:
    if not config.listen:
        raise ConfigError("listen: the server needs at least one address to listen on")
    for name, ordinals in config.pools.items():
        for ordinal in ordinals:
            if ordinal >= len(config.devices):
                count = len(config.devices)
                raise ConfigError(f"pools.{name}: there is no device {ordinal}, of {count} devices")
    _check_pools(config)
    secured = next((e for e in config.listen if speaks_tls(e)), None)
    if secured is not None and not (config.tls.certificate and config.tls.key):
        raise UsageError(
            f"{secured} needs a certificate: set tls.certificate and tls.key (`rgpu tls init "
            "FOLDER` makes what a try-out needs)"
        )
    wide = [e for e in config.listen if not e.loopback]
    if wide and not config.insecure and not config.identifies:
        raise UsageError(
            f"{wide[0]} can be reached from other machines and nothing says who their clients "
            f"are: make a token (`rgpu token new TENANT` writes {default_tokens_file()}, which is "
            "then read), name another tokens file (--tokens FILE), listen on 127.0.0.1 or a Unix "
            "socket, or say --insecure if the network is trusted"
        )
    metrics = config.metrics
    if metrics is not None and not metrics.loopback and not (config.insecure or config.watched):
        raise UsageError(
            f"metrics: {metrics} can be reached from other machines and shows what all tenants "
            "use: name a tokens file and identity.operators, so that an operator's token is asked "
            "for, serve metrics on 127.0.0.1, or say --insecure if the network is trusted"
        )
