"""Keeps the NodePaths of this node in the API server as they should be."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING, Any

from lightkube.types import PatchType

from rgpu_cluster.kubernetes.agent.own_paths import OwnPaths
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.path_objects import NO_DEFINITION, NodePaths

if TYPE_CHECKING:
    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.agent.publisher import Publisher
    from rgpu_common.v1 import agent_pb2

log = logging.getLogger("rgpu.kubernetes")

# Measurements that come together are written together.
WRITE_SECONDS = 30.0
# How long to wait after a failure: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
_DEADLINE_SECONDS = 40.0
# A row goes when it is old, without a report.
_LOOK_SECONDS = 600.0
_NOT_FOUND, _CONFLICT = 404, 409


class PathKeeping:
    """publisher: knows the Node, which owns the object."""

    def __init__(self, client: AsyncClient, node: str, publisher: Publisher) -> None:
        self._client: Any = client
        self._node = node
        self._publisher = publisher
        self._paths = OwnPaths()
        self._report: agent_pb2.NodeReport | None = None
        self._woken = asyncio.Event()
        # Whether there is an object; None: that is not known.
        self._is_there: bool | None = None
        self._pause = _FIRST_PAUSE
        self._said = ""

    def reported(self, report: agent_pb2.NodeReport) -> None:
        """Takes a report of the server."""
        self._report = report
        self._woken.set()

    def is_degraded(self) -> bool:
        """Returns whether the network of the node has become much worse than it was."""
        return self._paths.is_degraded(time.time())

    async def run(self) -> None:
        """Writes what has changed, at most every WRITE_SECONDS, until it is cancelled."""
        while True:
            self._woken.clear()
            await asyncio.sleep(await self._once())
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _LOOK_SECONDS)

    async def _once(self) -> float:
        """Returns for how long to do nothing."""
        if self._report is None:
            return 0.0
        try:
            wrote = await asyncio.wait_for(self._look(self._report), _DEADLINE_SECONDS)
        except asyncio.TimeoutError:
            return self._failed("the API server does not answer in time")
        except CALL_ERRORS as error:
            # Somebody may have made or removed the object.
            self._is_there = None
            return self._failed(sentence_of(error))
        self._said, self._pause = "", _FIRST_PAUSE
        return WRITE_SECONDS if wrote else 0.0

    def _failed(self, why: str) -> float:
        if why != self._said:
            log.warning("the measured paths are not published now: %s", why)
        self._said = why
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        # It is tried again even if the server reports nothing.
        self._woken.set()
        return pause

    async def _look(self, report: agent_pb2.NodeReport) -> bool:
        """Returns whether anything was written."""
        if self._is_there is None:
            content = await self._found()
            self._is_there = content is not None
            self._paths.found(content)
        status = self._paths.wanted(report, time.time())
        if status is None:
            return False
        if not self._is_there:
            await self._make()
        change = {"status": status}
        await self._client.patch(NodePaths.Status, self._node, change, patch_type=PatchType.MERGE)
        self._is_there = True
        self._paths.written(status)
        return True

    async def _found(self) -> dict[str, Any] | None:
        try:
            found = await self._client.get(NodePaths, self._node)
        except CALL_ERRORS as error:
            if code_of(error) == _NOT_FOUND:
                return None
            raise
        content: dict[str, Any] = found.to_dict()
        return content

    async def _make(self) -> None:
        await self._publisher.look()
        owner = self._publisher.owner
        metadata = {"name": self._node, "ownerReferences": [owner] if owner is not None else []}
        try:
            await self._client.create(NodePaths(metadata=metadata))
        except CALL_ERRORS as error:
            if code_of(error) == _NOT_FOUND:
                raise OSError(NO_DEFINITION) from None
            if code_of(error) != _CONFLICT:
                raise
