"""Asks the kubelet which container has which units."""

from __future__ import annotations

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
_OPTIONS = (("grpc.max_receive_message_length", 16 << 20),)


class KubeletList:
    """socket: that of the kubelet's list of resources."""

    def __init__(self, socket: Path, vocabulary: Vocabulary) -> None:
        self._socket = socket
        self._vocabulary = vocabulary

    async def listed(self) -> list[Container]:
        """Returns the containers with units of the leading resource; PrepareError."""
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
