"""Serves the scheduler extender beside a manager that serves Kubernetes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_cluster.kubernetes.binding import Extender
from rgpu_cluster.kubernetes.certificates import Certificates
from rgpu_cluster.kubernetes.extender import Extending
from rgpu_cluster.kubernetes.granting import GRANT_SECONDS, ManagerCluster
from rgpu_cluster.kubernetes.web import Limits, Server
from rgpu_common.tasks import end

if TYPE_CHECKING:
    from lightkube import AsyncClient

    from rgpu_cluster.manager.kubernetes_keys import KubernetesKeys
    from rgpu_cluster.manager.shell import Shell

# The scheduler sends whole nodes, some 10 KiB each; binding waits for a daemon.
LIMITS = Limits(body_bytes=64 << 20, callers=16, answer_seconds=GRANT_SECONDS + 4.0)


async def serve_extender(client: AsyncClient, shell: Shell, keys: KubernetesKeys) -> None:
    """Serves until it is cancelled.

    Raises:
        ConfigError: the certificate's files cannot be used.
    """
    assert keys.extender is not None
    files = None
    if keys.extender_certificate:
        authority = Path(keys.extender_ca) if keys.extender_ca else None
        files = Certificates(Path(keys.extender_certificate), Path(keys.extender_key), authority)
    options = Extending(farthest=keys.extender_reach)
    extender = Extender(client, ManagerCluster(shell), options)
    server = Server(extender.routes(), LIMITS)
    watching = asyncio.ensure_future(extender.run())
    try:
        tls = files.context if files is not None else None
        port = await server.start(keys.extender.host, keys.extender.port, tls)
        scheme = "http" if files is None else "https"
        print(f"rgpu: the extender serves {scheme}://{keys.extender.host}:{port}", flush=True)
        if files is not None:
            await files.watch()
        await watching
    finally:
        await end([watching])
        await server.close()
