"""Asks the kubelet which container has which units."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import grpc

from rgpu_cluster.kubelet.api import podresources_pb2, podresources_pb2_grpc
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.keeping import Container

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rgpu_cluster.kubelet.units.vocabulary import Vocabulary

_CALL_SECONDS = 10.0
# A kubelet rejects calls beyond 100 a second and 10 at once, those of monitors included.
_APART_SECONDS = 0.05
_OPTIONS = (("grpc.max_receive_message_length", 16 << 20),)


class KubeletList:
    """Makes one call at a time, and all who ask before it begins share its answer: of a node that
    starts, all containers ask at once.

    socket: that of the kubelet's list of resources.
    """

    def __init__(self, socket: Path, vocabulary: Vocabulary) -> None:
        self._socket = socket
        self._vocabulary = vocabulary
        self._running: asyncio.Future[list[Container]] | None = None
        self._next: asyncio.Future[list[Container]] | None = None
        self._began = -_APART_SECONDS

    async def listed(self) -> list[Container]:
        """Returns the containers with units of the leading resource; PrepareError."""
        if self._next is None:
            # What a running call answers may lack the container for which this one is asked.
            self._next = asyncio.ensure_future(self._after(self._running))
            self._next.add_done_callback(_note)
        # Who takes its question back takes it from none of the others.
        return list(await asyncio.shield(self._next))

    async def _after(self, before: asyncio.Future[list[Container]] | None) -> list[Container]:
        """Makes the next call when the one before is over."""
        if before is not None:
            await asyncio.wait([before])
        await asyncio.sleep(self._began + _APART_SECONDS - time.monotonic())
        self._running, self._next = self._next, None
        self._began = time.monotonic()
        return await self._asked()

    async def _asked(self) -> list[Container]:
        target = f"unix:{self._socket}"
        async with grpc.aio.insecure_channel(target, options=_OPTIONS) as channel:
            stub = podresources_pb2_grpc.PodResourcesListerStub(channel)
            asked = podresources_pb2.ListPodResourcesRequest()
            try:
                answer = await stub.List(asked, timeout=_CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                raise PrepareError(
                    f"the kubelet does not list its containers at {self._socket} "
                    f"({error.details()}): name its folder with --kubelet-dir"
                ) from None
        return [*self._found(answer)]

    def _found(self, answer: podresources_pb2.ListPodResourcesResponse) -> Iterator[Container]:
        names = {one.name for one in self._vocabulary.resources}
        for pod in answer.pod_resources:
            for container in pod.containers:
                units: Counter[str] = Counter()
                leading: list[str] = []
                for row in container.devices:
                    if row.resource_name in names:
                        units[row.resource_name] += len(row.device_ids)
                    if row.resource_name == self._vocabulary.leading.name:
                        leading += row.device_ids
                if leading:
                    yield Container(
                        pod.namespace, pod.name, container.name, tuple(leading), dict(units)
                    )


def _note(call: asyncio.Future[list[Container]]) -> None:
    """Looks at why a call failed, where all who had asked have gone."""
    if not call.cancelled():
        call.exception()
