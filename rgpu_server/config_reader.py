"""Reads what the operator sets: command line over configuration file over defaults.

The keys are the fields of `ServerConfig`; here are the checks that concern more than one of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rgpu_common.config import Table, read_toml
from rgpu_common.endpoints import speaks_tls
from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.keys import fill
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import counted
from rgpu_server.config import MIN_COMPILER_BYTES, ServerConfig
from rgpu_server.config_kinds import parse_devices
from rgpu_server.core.identity import Require
from rgpu_server.core.model import DEFAULT_POOL, RefusedError
from rgpu_server.core.shares import settle
from rgpu_server.identity.access_tokens import default_tokens_file
from rgpu_server.identity.settings import with_default_tokens_file
from rgpu_server.web.settings import check_web

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


def load_config(
    path: Path | None,
    said: Mapping[str, Any],
    default_devices: Callable[[], tuple[str, ...]] = lambda: ("emulated",),
    gpus: Callable[[], tuple[str, ...]] = lambda: ("cuda:0",),
) -> ServerConfig:
    """Reads and checks everything.

    said: name of a key -> value of its command-line option. default_devices: is asked where neither
    the command line nor the file names any. gpus: is asked where `cuda` stands for all of them.

    Raises:
        UsageError: with the key or option, its value and what is accepted.
    """
    root = read_toml(path) if path is not None else Table({}, "defaults")
    wrong = _Wrong(root)
    config = fill(ServerConfig, root, said)
    if not config.devices:
        config = replace(config, devices=parse_devices(default_devices()))
    if any(device.every for device in config.devices):
        named = [
            word
            for device in config.devices
            for word in (gpus() if device.every else (str(device),))
        ]
        config = replace(config, devices=parse_devices(tuple(named)))
    reached = (*config.listen, *([config.web.listen] if config.web.listen else []))
    strict = config.identity.require is Require.ALWAYS
    if not config.insecure and (strict or not all(endpoint.loopback for endpoint in reached)):
        config = replace(config, identity=with_default_tokens_file(config.identity, config.tls))
    _check_shares(config, wrong)
    _check_parts(config, wrong)
    _check_pools(config)
    _check_listeners(config)
    return config


class _Wrong:
    """Makes the errors of keys that contradict each other, with the name of the file."""

    def __init__(self, root: Table) -> None:
        self._root = root
        self.limited = root.names_key("leases.limit")

    def __call__(self, name: str, reason: str) -> ConfigError:
        return self._root.refuse(name, reason)


def _check_shares(config: ServerConfig, wrong: _Wrong) -> None:
    """Checks policy, share and limit of a lease that does not say."""
    policy = config.policy
    request, limit = policy.default_share_request_ppm, policy.default_share_limit_ppm
    if limit == 0 or request > limit:
        raise wrong("leases.limit", "must be above 0 and not below leases.share")
    if policy.default_policy is SharePolicy.FIXED and not request:
        raise wrong("leases.policy", "fixed needs a share above 0: leases.share")
    try:
        # A limit that the file does not name is the policy's to dictate.
        settle(policy.default_policy, request, limit if wrong.limited else None)
    except RefusedError as error:
        raise wrong("leases.policy", f"{error} (leases.share, leases.limit)") from None


def _check_parts(config: ServerConfig, wrong: _Wrong) -> None:
    compiler, tls = config.emulated.compiler, config.tls
    if compiler.memory_bytes < compiler.processes * MIN_COMPILER_BYTES:
        raise wrong("emulated.compiler_memory", "must be at least 1GiB for each process")
    if tls.require_client_cert and not tls.client_ca:
        raise wrong(
            "tls.require_client_cert", "also set tls.client_ca, the authority that signs them"
        )


def _check_pools(config: ServerConfig) -> None:
    """Refuses unknown pools and devices: otherwise only a tenant who finds no device would see a
    mistyped name.
    """
    for name, ordinals in config.pools.items():
        for ordinal in ordinals:
            if ordinal >= len(config.devices):
                has = counted(len(config.devices), "device")
                raise ConfigError(
                    f"pools.{name}: there is no device {ordinal}: the server has {has}, numbered "
                    "from 0"
                )
    known = (DEFAULT_POOL, *config.pools)
    for name, tenant in config.tenants.items():
        for pool in tenant.pools:
            if pool not in known:
                raise ConfigError(
                    f"tenants.{name}.pools: there is no pool {pool!r}, only {', '.join(known)}: "
                    "correct the name, or add it to [pools] (as [] if no device here is in it)"
                )


def _check_listeners(config: ServerConfig) -> None:
    if not config.listen:
        raise ConfigError("listen: the server needs at least one address to listen on")
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
            f"are: make an access token (`rgpu token new TENANT` writes {default_tokens_file()}, "
            "which is then read), name another tokens file (--tokens FILE), listen on 127.0.0.1 or "
            "a Unix socket, or say --insecure if the network is trusted"
        )
    check_web(
        config.web,
        config.listen,
        identified=bool(config.insecure or config.identity.tokens),
        certificate=bool(config.tls.certificate and config.tls.key),
    )
    metrics = config.metrics
    if metrics is not None and not metrics.loopback and not (config.insecure or config.watched):
        raise UsageError(
            f"metrics: {metrics} can be reached from other machines and shows what all tenants "
            "use: name a tokens file and identity.operators, so that an operator's access token is "
            "asked for, serve metrics on 127.0.0.1, or say --insecure if the network is trusted"
        )
