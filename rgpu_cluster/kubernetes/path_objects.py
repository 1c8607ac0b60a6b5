"""The resource NodePaths, and how a manager that begins to lead learns from its objects."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from lightkube.generic_resource import create_global_resource

from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.names import GROUP, VERSION
from rgpu_cluster.kubernetes.node_paths import client_of, rows_in
from rgpu_cluster.kubernetes.objects import Objects, key_of

if TYPE_CHECKING:
    from lightkube import AsyncClient

    from rgpu_cluster.manager.earlier_paths import EarlierPaths

log = logging.getLogger("rgpu.kubernetes")

NodePaths: Any = create_global_resource(GROUP, VERSION, "NodePaths", "nodepaths")
NO_DEFINITION = (
    "there is no CRD nodepaths.rgpu.dev; kubectl apply -f deploy/kubernetes/crds/ makes it"
)
# No pod waits for longer until the manager serves.
_LOAD_SECONDS = 5.0
_NOT_FOUND = 404


async def load_paths(client: AsyncClient, earlier: EarlierPaths) -> None:
    """Remembers what the nodes have measured for an earlier manager.

    Without it, all is measured again. So nothing that goes wrong here is an error.
    """
    try:
        await asyncio.wait_for(_load(client, earlier), _LOAD_SECONDS)
    except asyncio.TimeoutError:
        log.warning("some paths are measured again: the API server is slow to list NodePaths")
    except CALL_ERRORS as error:
        if code_of(error) != _NOT_FOUND:
            log.warning("paths are measured again: %s", sentence_of(error))


async def _load(client: Any, earlier: EarlierPaths) -> None:
    async for content in Objects(client, NodePaths, {}).list():
        end = client_of(content)
        if end is not None:
            rows = [(row.server, row.figures, row.measured_at) for row in rows_in(content)]
            earlier.remember(key_of(content)[1], end, rows)
