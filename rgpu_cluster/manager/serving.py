"""Builds a manager from its configuration, and runs it until a signal."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.quotas import Quotas
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.manager.clients import ManagerService
from rgpu_cluster.manager.config import unencrypted
from rgpu_cluster.manager.door import Door
from rgpu_cluster.manager.early import Early
from rgpu_cluster.manager.metrics import ManagerCollector
from rgpu_cluster.manager.nodes import AgentService
from rgpu_cluster.manager.shell import Shell
from rgpu_cluster.manager.tickets import Tickets, key_of
from rgpu_cluster.manager.web_pages import ClusterPages
from rgpu_common.clusters import MAX_MESSAGE_BYTES
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint
from rgpu_common.errors import ServerError
from rgpu_common.v1 import agent_pb2_grpc, cluster_pb2_grpc
from rgpu_server.daemon import run_loop
from rgpu_server.descriptors import raise_limit
from rgpu_server.identity.access_tokens import existing_access_tokens
from rgpu_server.identity.authenticator import Authenticator
from rgpu_server.identity.grpc_certificates import served_certificates
from rgpu_server.observe.metrics import Metrics
from rgpu_server.service.offers import UNSPECIFIED
from rgpu_server.service.taken import check_free
from rgpu_server.web.opening import WebDoor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_cluster.manager.config import ManagerConfig
    from rgpu_common.endpoints import Endpoint

log = logging.getLogger("rgpu.manager")

_GRACE_SECONDS = 0.5
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 4096),
    # Agents ask every 20 s whether the manager is there.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.server_handshake_timeout_ms", 10_000),
    # A connection on which nothing is asked.
    ("grpc.max_connection_idle_ms", 300_000),
)


class ManagerServer:
    """One manager. `run` returns when a signal has stopped it."""

    def __init__(self, config: ManagerConfig) -> None:
        self._config = config
        limits = Limits(
            silence_ns=round(config.silence_seconds * SECOND),
            grant_ns=round(config.grant_seconds * SECOND),
            start_ns=round(config.start_seconds * SECOND),
            reserve_ns=round(config.longest_seconds * SECOND),
            reservations_per_tenant=config.most_reservations,
            grace_ns=round(config.grace_seconds * SECOND),
        )
        self._authenticator = authenticator_of(config)
        manager = Manager(PRESETS[config.preset], limits, Quotas(config.tenants))
        self.shell = Shell(manager, tickets=tickets_of(config))
        by_uri = config.identity.certificate == "uri"
        prefix = config.identity.uri_prefix if by_uri else ""
        door = Door(self._authenticator, config.nodes, prefix)
        self._early = Early(door)
        self._agents = AgentService(self.shell, door)
        self._clients = ManagerService(self.shell, self._agents, door)
        self._web = WebDoor(config.web, config.tls, self._authenticator)
        self._stop = asyncio.Event()

    async def run(self, ready: Callable[[Sequence[Endpoint]], None]) -> None:
        """Serves; calls `ready` with the bound addresses. ServerError: one cannot be bound."""
        metrics = None
        server = grpc.aio.server(options=_OPTIONS, interceptors=[self._early])
        agent_pb2_grpc.add_AgentServiceServicer_to_server(self._agents, server)
        cluster_pb2_grpc.add_ManagerServiceServicer_to_server(self._clients, server)
        bound = bind_all(self._config.listen, lambda endpoint: self._bind(server, endpoint))
        await server.start()
        try:
            self._on_signals()
            self.shell.start()
            if self._config.metrics is not None:
                metrics = Metrics(
                    ManagerCollector(self.shell), self._authenticator, lambda: (200, "ok\n")
                )
                where = await metrics.start(self._config.metrics)
                log.info("metrics on http://%s/metrics", where)
            await self._web.open(lambda _: ClusterPages(self._clients, self.shell))
            ready(bound)
            await self._stop.wait()
        finally:
            await self._web.close()
            if metrics is not None:
                await metrics.close()
            await server.stop(_GRACE_SECONDS)
            self.shell.close()

    def stop(self) -> None:
        """Ends `run`."""
        self._stop.set()

    def _on_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)

    def _bind(self, server: grpc.aio.Server, endpoint: Endpoint) -> Endpoint:
        assert isinstance(endpoint, TcpEndpoint)
        if endpoint.port:
            check_free([TcpEndpoint(endpoint.host, endpoint.port)])
        where = str(TcpEndpoint(endpoint.host, endpoint.port))
        try:
            if isinstance(endpoint, TlsEndpoint):
                port = server.add_secure_port(where, served_certificates(self._config.tls))
            else:
                port = server.add_insecure_port(where)
        except RuntimeError:
            raise ServerError(
                f"cannot listen on {endpoint}; name another address with --listen"
            ) from None
        return type(endpoint)(endpoint.host, port)


def bind_all(endpoints: Sequence[Endpoint], bind: Callable[[Endpoint], Endpoint]) -> list[Endpoint]:
    """Binds addresses, and returns what they have become.

    gRPC takes 0.0.0.0 and [::] alike for all addresses of both families, so the second of them with
    the same port is bound already.
    """
    bound: list[Endpoint] = []
    everywhere: set[tuple[type[Endpoint], int]] = set()
    for endpoint in endpoints:
        assert isinstance(endpoint, TcpEndpoint)
        what = type(endpoint), endpoint.port
        bound.append(endpoint if what in everywhere else bind(endpoint))
        if endpoint.host in UNSPECIFIED and endpoint.port:
            everywhere.add(what)
    return bound


def authenticator_of(config: ManagerConfig) -> Authenticator:
    """Returns what knows callers; ConfigError if the tokens file cannot be used."""
    identity = config.identity
    known = existing_access_tokens(Path(identity.tokens)) if identity.tokens else None
    rules = identity.rules(certificates=bool(config.tls.client_ca), insecure=config.insecure)
    return Authenticator(rules, known)


def tickets_of(config: ManagerConfig) -> Tickets:
    """Returns what signs tickets. A manager with the same secret file knows them again.

    The secret is the TLS key, or else the tokens file, which changes more often. A tenant cannot
    derive the key from its own access token, because the file has a hash of every other one; those
    are as random as a key.
    """
    name = config.tls.key or config.identity.tokens
    try:
        return Tickets(key_of(Path(name).read_bytes()) if name else None)
    except OSError as error:
        raise ServerError(f"{name} cannot be read: {error.strerror}") from None


def serve(config: ManagerConfig) -> None:
    """Runs a manager in this process until a signal; errors as `ManagerServer.run`."""
    raise_limit()  # each connection is a file, and strangers may hold many
    for endpoint in unencrypted(config) if config.identity.tokens else ():
        log.warning(
            "access tokens come to %s unencrypted: a tls: address keeps them secret", endpoint
        )

    async def main() -> None:
        await ManagerServer(config).run(announce)

    run_loop(main)


def announce(bound: Sequence[Endpoint]) -> None:
    """Says that the manager serves."""
    where = ", ".join(map(str, bound))
    print(f"rgpu: managing a cluster on {where}", flush=True)
