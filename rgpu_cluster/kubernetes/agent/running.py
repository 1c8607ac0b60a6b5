"""Runs the agent of a GPU node until a signal."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from lightkube.resources.resource_v1 import ResourceClaim

from rgpu_cluster.kubernetes.agent.claims import Claims
from rgpu_cluster.kubernetes.agent.daemon import DaemonLink
from rgpu_cluster.kubernetes.agent.doing import Doing
from rgpu_cluster.kubernetes.agent.health import Health
from rgpu_cluster.kubernetes.agent.keeper import Keeper
from rgpu_cluster.kubernetes.agent.offering import Offering
from rgpu_cluster.kubernetes.agent.path_keeping import PathKeeping
from rgpu_cluster.kubernetes.agent.pod_keys import PodKeys
from rgpu_cluster.kubernetes.agent.publisher import Publisher
from rgpu_cluster.kubernetes.agent.service import CredentialService
from rgpu_cluster.kubernetes.agent.views import view_of
from rgpu_cluster.kubernetes.api import open_client
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_common.claim_tokens import key_in
from rgpu_common.endpoints import TcpEndpoint, TlsEndpoint
from rgpu_common.errors import ServerError
from rgpu_common.tasks import end
from rgpu_common.v1 import credentials_pb2_grpc
from rgpu_server.daemon import run_loop
from rgpu_server.identity.grpc_certificates import served_certificates
from rgpu_server.service.taken import check_free

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.agent.access import PodFacts
    from rgpu_cluster.kubernetes.agent.config import AgentConfig
    from rgpu_cluster.kubernetes.agent.views import ClaimView
    from rgpu_common.v1 import agent_pb2

log = logging.getLogger("rgpu.kubernetes")

_GRACE_SECONDS = 0.5
# Something is looked at anew so often, whether or not anybody has said anything.
_LOOK_SECONDS = 10.0
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", 64 << 10),
    ("grpc.max_metadata_size", 16 << 10),
    ("grpc.max_concurrent_streams", 256),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 300_000),
)


class AgentNode:
    """One agent. `run` returns when a signal has stopped it."""

    def __init__(self, config: AgentConfig, client: AsyncClient) -> None:
        self._config = config
        self._client = client
        node = config.node_name
        self._report: agent_pb2.NodeReport | None = None
        self._leases_wake, self._pool_wake = asyncio.Event(), asyncio.Event()
        self._stop = asyncio.Event()
        self._keeper = Keeper()
        self._claims: Informer[ResourceClaim] = Informer(
            client, ResourceClaim, namespace="*", on_change=self._claim_changed
        )
        self._api = Claims(client, node)
        self._pod_keys = PodKeys(client, config.pod_keys)
        self._daemon = DaemonLink(config.daemon, self._reported, self._silent)
        self._doing = Doing(self._keeper, self._api, self._daemon, self._wake)
        publisher = Publisher(client, node, self._pool_wake.set)
        health = Health(config.evict_seconds, config.offer)
        self._offering = Offering(config, publisher, health)
        self._paths = PathKeeping(client, node, publisher)

    async def run(self) -> None:
        """Serves until `stop`. ServerError: the address for client nodes cannot be bound."""
        server = await self._serve()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        where = f", credentials on {self._config.listener}" if server is not None else ""
        print(f"rgpu: agent of node {self._config.node_name}{where}", flush=True)
        parts: list[Coroutine[Any, Any, None]] = [
            self._daemon.run(),
            self._claims.run(),
            self._offering.publisher.slices.run(),
            self._keep(),
            self._offer(),
            self._pod_keys.run(),
            self._paths.run(),
        ]
        tasks = [asyncio.ensure_future(part) for part in (*parts, self._until_stopped())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await end(tasks)
            await self._doing.close()
            if server is not None:
                await server.stop(_GRACE_SECONDS)
            await self._client.close()

    def stop(self) -> None:
        """Ends `run`. The pool stays: the server goes on."""
        self._stop.set()

    async def _until_stopped(self) -> None:
        await self._stop.wait()

    # What the credential service asks.

    def claim(self, namespace: str, name: str) -> ClaimView | None:
        found: Any = self._claims.store.get((namespace, name))
        return None if found is None else self._keeper.view(str(found.metadata.uid))

    def address(self) -> str:
        return self._report.address if self._report is not None else ""

    def is_leased(self, uid: str) -> bool:
        return self._keeper.leased_view(uid) is not None

    async def pods(self, view: ClaimView, most: int) -> list[PodFacts | None]:
        return await self._api.pods(view, most)

    # What changes.

    def _reported(self, report: agent_pb2.NodeReport, first: bool) -> None:
        if first and report.name != self._config.node_name:
            log.warning(
                "the server calls itself %s and this node is %s, so a manager would not find its "
                "pool: start it with `rgpu serve --node-name %s`",
                report.name, self._config.node_name, self._config.node_name,
            )  # fmt: skip
        self._report = report
        self._keeper.report(report, first, time.monotonic())
        self._paths.reported(report)
        self._wake()

    def _silent(self) -> None:
        self._report = None
        self._keeper.silent()
        self._wake()

    def _claim_changed(self, before: Any, after: Any) -> None:
        node, concerns = self._config.node_name, False
        if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
            concerns = self._keeper.claim(str(before.metadata.uid), None)
        if after is not None:
            concerns |= self._keeper.claim(str(after.metadata.uid), view_of(after, node))
        if concerns:
            self._wake()

    def _wake(self) -> None:
        self._leases_wake.set()
        self._pool_wake.set()

    async def _keep(self) -> None:
        """Does what leases need, again and again, once all claims are known."""
        await self._claims.synced.wait()
        self._keeper.synced = True
        while True:
            self._leases_wake.clear()
            due = self._doing.start()
            await _woken(self._leases_wake, due)

    async def _offer(self) -> None:
        """Publishes what has changed, again and again, and delays no lease by that."""
        await self._offering.publisher.slices.synced.wait()
        # A device that a claim has stays in the pool.
        await self._claims.synced.wait()
        while True:
            self._pool_wake.clear()
            for device in self._keeper.take_full():
                self._offering.fill(device)
            self._offering.degraded = self._paths.is_degraded()
            due = await self._offering.publish(self._report, self._keeper.used())
            await _woken(self._pool_wake, due)

    async def _serve(self) -> grpc.aio.Server | None:
        """Starts the service for client nodes, if the configuration has one."""
        config, listener = self._config, self._config.listener
        if listener is None:
            return None
        server = grpc.aio.server(options=_OPTIONS)
        credentials_pb2_grpc.add_CredentialServiceServicer_to_server(
            CredentialService(
                self._client,
                self,
                key_in(Path(config.key_file)),
                config.plugin_account,
                config.lifetime_seconds,
            ),
            server,
        )
        check_free([TcpEndpoint(listener.host, listener.port)])
        where = str(TcpEndpoint(listener.host, listener.port))
        try:
            if isinstance(listener, TlsEndpoint):
                server.add_secure_port(where, served_certificates(config.tls))
            else:
                server.add_insecure_port(where)
        except RuntimeError:
            raise ServerError(
                f"cannot listen on {listener}; name another address with --listen"
            ) from None
        await server.start()
        return server


async def _woken(wake: asyncio.Event, due: float) -> None:
    """Waits until something has changed or is due."""
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(wake.wait(), min(max(due, 0.01), _LOOK_SECONDS))


def run_agent(config: AgentConfig) -> None:
    """Runs an agent until a signal.

    Raises:
        RgpuError: it cannot start.
    """
    if config.key_file:
        key_in(Path(config.key_file))

    async def main() -> None:
        await AgentNode(config, open_client(config.kubeconfig)).run()

    run_loop(main)
