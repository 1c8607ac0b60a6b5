"""Runs one replica of a manager that serves Kubernetes. It serves while it leads."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from rgpu_cluster.kubernetes.api import open_client
from rgpu_cluster.kubernetes.election import Elector
from rgpu_cluster.kubernetes.extending import serve_extender
from rgpu_cluster.kubernetes.front import Front
from rgpu_cluster.kubernetes.names import MANAGER_LEASE
from rgpu_cluster.kubernetes.path_objects import load_paths
from rgpu_cluster.kubernetes.quota_keeping import GpuQuotas
from rgpu_cluster.kubernetes.reserved import Bounds
from rgpu_cluster.manager.serving import ManagerServer, announce
from rgpu_common.errors import ServerError
from rgpu_common.tasks import end
from rgpu_server.daemon import run_loop

if TYPE_CHECKING:
    from rgpu_cluster.manager.config import ManagerConfig

log = logging.getLogger("rgpu.manager")


def serve(config: ManagerConfig) -> None:
    """Runs a replica until a signal.

    Raises:
        ConfigError: Kubernetes cannot be reached as the configuration says.
        ServerError: the replica leads no more; who runs it starts it again, and it waits then.
    """
    run_loop(lambda: _run(config))


async def _run(config: ManagerConfig) -> None:
    keys = config.kubernetes.filled()
    async with open_client(keys.kubeconfig) as client:
        elector = Elector(client, keys.namespace, MANAGER_LEASE, keys.identity)
        print(f"rgpu: {keys.identity} waits to lead the manager's replicas", flush=True)
        await elector.win()
        server = ManagerServer(config)
        quotas = GpuQuotas(client, server.shell, config.tenants)
        # No pod is to be placed by quotas that are not known yet.
        await quotas.load()
        await load_paths(client, server.shell.earlier_paths)
        front = Front(
            client, server.shell, Bounds(config.most_reservations, config.longest_seconds)
        )
        serving = asyncio.ensure_future(server.run(announce))
        watching = asyncio.ensure_future(front.run())
        holding = asyncio.ensure_future(elector.hold())
        tasks = [serving, watching, holding, asyncio.ensure_future(quotas.run())]
        if keys.extender is not None:
            tasks.append(asyncio.ensure_future(serve_extender(client, server.shell, keys)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if holding.done() and not serving.done():
                raise ServerError(f"this replica leads no more ({holding.result()})")
        finally:
            server.stop()
            await asyncio.wait({serving}, timeout=5.0)
            await end(tasks)
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await elector.give_up()
        for result in results:
            if isinstance(result, Exception):
                raise result
