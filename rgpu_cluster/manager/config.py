"""The manager's configuration, as `rgpu_server.config` has the server's."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.quotas import OTHERS, TenantQuota
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.manager.kubernetes_keys import KubernetesKeys
from rgpu_common.clusters import MANAGER_PORT, MAX_RESERVE_SECONDS, manager_endpoint
from rgpu_common.config import Table, read_toml
from rgpu_common.endpoints import GrpcEndpoint, TcpEndpoint, TlsEndpoint, speaks_tls
from rgpu_common.errors import UsageError
from rgpu_common.key_kinds import Choice, Flag, Integer, Seconds, Text
from rgpu_common.keys import Option, fill, key, part
from rgpu_server.config_kinds import Each, Listeners, MetricsAddress
from rgpu_server.core.identity import Require
from rgpu_server.identity.access_tokens import check_tenant, default_tokens_file
from rgpu_server.identity.settings import Identity, Tls, with_default_tokens_file
from rgpu_server.web.settings import Web, check_web

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from rgpu_common.endpoints import Endpoint


class ManagerListeners(Listeners):
    """Addresses on which a manager listens."""

    word = "`HOST:PORT` or `tls:HOST:PORT`"

    def parse(self, texts: tuple[str, ...]) -> tuple[Endpoint, ...]:
        found = []
        for text in texts:
            endpoint = manager_endpoint(text)
            if not isinstance(endpoint, TcpEndpoint) or isinstance(endpoint, GrpcEndpoint):
                raise UsageError(
                    f"{text}: a manager listens on HOST:PORT, or on tls:HOST:PORT with a "
                    "certificate"
                )
            found.append(endpoint)
        return tuple(found)


class Preset(Choice[str]):
    """The name of a set of weights, also as an option."""

    def __init__(self) -> None:
        super().__init__({name: name for name in PRESETS})

    def said(self, option: Option, value: Any) -> str:
        if value not in PRESETS:
            raise UsageError(f"{option.flag}: {value!r} is none of {', '.join(PRESETS)}")
        return str(value)


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """Everything the manager needs to start."""

    listen: tuple[Endpoint, ...] = key(
        "listen", ManagerListeners(), (TcpEndpoint("127.0.0.1", MANAGER_PORT),),
        "The addresses on which the manager listens.",
        option=Option("--listen", "ADDRESS", repeated=True),
    )  # fmt: skip
    insecure: bool = key(
        "insecure", Flag(), False,
        "Believe nodes and clients on other machines that show neither an access token nor a "
        "certificate.",
        option=Option("--insecure"),
    )  # fmt: skip
    preset: str = key(
        "placement.preset", Preset(), "fgd",
        "What placement prefers.",
        option=Option("--preset", "NAME"),
    )  # fmt: skip
    silence_seconds: float = key(
        "nodes.silence_seconds", Seconds(1, 3600), 15.0,
        "A node whose agent is silent for so long is lost: nothing is placed on it.",
    )  # fmt: skip
    grant_seconds: float = key(
        "nodes.grant_seconds", Seconds(1, 600), 10.0,
        "A request is placed elsewhere if its node's server has not granted it for so long.",
    )  # fmt: skip
    start_seconds: float = key(
        "nodes.start_seconds", Seconds(0, 600), 10.0,
        "How long after its start the manager denies no request for want of nodes, because they "
        "may not have joined again yet.",
    )  # fmt: skip
    longest_seconds: float = key(
        "reservations.longest_seconds", Seconds(1, MAX_RESERVE_SECONDS), 86400.0,
        "The longest time for which `rgpu reserve` reserves.",
    )  # fmt: skip
    most_reservations: int = key(
        "reservations.most_per_tenant", Integer(0, 1000), 16,
        "How many reservations one tenant may have, with those that wait. 0: nobody reserves.",
    )  # fmt: skip
    grace_seconds: float = key(
        "reclaim.grace_seconds", Seconds(0, 86400), 30.0,
        "How long before a lease ends, because another tenant is owed what it borrowed, that is "
        "announced.",
    )  # fmt: skip
    nodes: str = key(
        "nodes.tenant", Text(), "nodes",
        "The tenant whose access tokens let any node join. A token of the tenant `nodes:NAME` lets "
        "in only the node NAME.",
    )  # fmt: skip
    metrics: TcpEndpoint | None = key(
        "metrics.listen", MetricsAddress(), None,
        "Serve Prometheus metrics (`/metrics`) and `/health` at this address.",
        option=Option("--metrics", "HOST:PORT"), unset="none", inline=True,
    )  # fmt: skip
    web: Web = part(Web)
    tenants: dict[str, TenantQuota] = key(
        "tenants", Each(TenantQuota), {}, "What one tenant may have of the cluster."
    )  # fmt: skip
    identity: Identity = part(Identity)
    tls: Tls = part(Tls)
    kubernetes: KubernetesKeys = part(KubernetesKeys)


def load_manager_config(path: Path | None, said: Mapping[str, Any]) -> ManagerConfig:
    """Reads and checks everything, as `rgpu_server.config_reader.load_config`."""
    root = read_toml(path) if path is not None else Table({}, "defaults")
    config = fill(ManagerConfig, root, said)
    check_tenant(config.nodes)
    config.kubernetes.check()
    for tenant in set(config.tenants) - {OTHERS}:
        check_tenant(tenant)
    wide = [e for e in config.listen if not getattr(e, "loopback", True)]
    page = config.web.listen
    strict = config.identity.require is Require.ALWAYS
    reached = wide or (page is not None and not page.loopback)
    if (reached or strict) and not config.insecure:
        identity = with_default_tokens_file(config.identity, config.tls)
        config = replace(config, identity=identity)
    if not config.listen:
        raise UsageError("listen: the manager needs at least one address to listen on")
    _check_certificates(config)
    _check_callers(config, wide)
    return config


def _check_certificates(config: ManagerConfig) -> None:
    """UsageError if a certificate is missing, or asked for in a way that a manager cannot."""
    secured = next((e for e in config.listen if isinstance(e, TlsEndpoint)), None)
    if secured is not None and not (config.tls.certificate and config.tls.key):
        raise UsageError(
            f"{secured} needs a certificate: set tls.certificate and tls.key (`rgpu tls init "
            "FOLDER` makes what a try-out needs)"
        )
    if secured is not None:
        config.tls.check()
    if config.tls.client_ca and not config.tls.require_client_cert:
        raise UsageError(
            "tls.client_ca: a manager asks either every client on its tls: addresses for a "
            "certificate or none: set tls.require_client_cert = true, or leave tls.client_ca out "
            "and use access tokens"
        )


def _check_callers(config: ManagerConfig, wide: Sequence[Endpoint]) -> None:
    """UsageError if other machines reach an address and nothing says who calls. wide: those that
    they reach.
    """
    known = config.identity.tokens or config.tls.client_ca
    check_web(
        config.web,
        config.listen,
        identified=bool(config.insecure or config.identity.tokens),
        certificate=bool(config.tls.certificate and config.tls.key),
    )
    if wide and not config.insecure and not known:
        raise UsageError(
            f"{wide[0]} can be reached from other machines and nothing says who joins and who "
            f"asks: make access tokens (`rgpu token new nodes` and `rgpu token new TENANT` write "
            f"{default_tokens_file()}, which is then read), name another tokens file (--tokens "
            "FILE), listen on 127.0.0.1, or say --insecure if the network is trusted"
        )
    if config.identity.require is Require.ALWAYS and not known:
        raise UsageError(
            'identity.require = "always" lets nobody in, neither nodes nor tenants, because there '
            "are no access tokens: make some (`rgpu token new nodes` and `rgpu token new TENANT` "
            f"write {default_tokens_file()}, which is then read), or name another tokens file "
            "(--tokens FILE)"
        )


def unencrypted(config: ManagerConfig) -> list[Endpoint]:
    """Returns the addresses to which access tokens come unencrypted from other machines."""
    return [e for e in config.listen if not (e.loopback or speaks_tls(e))]
