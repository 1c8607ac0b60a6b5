"""The device plugin asks the kubelet for its containers no more often than a kubelet answers."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace as Object
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from helpers.short_folder import short_folder

from rgpu_cluster.kubelet.api import podresources_pb2 as pods
from rgpu_cluster.kubelet.api import podresources_pb2_grpc as pods_grpc
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.held import HeldFolder
from rgpu_cluster.kubelet.units.keeping import Keeper
from rgpu_cluster.kubelet.units.listing import KubeletList
from rgpu_cluster.kubelet.units.vocabulary import VOCABULARIES

pytestmark = pytest.mark.asyncio
WORDS = VOCABULARIES["gpumanager"]
_SECONDS = 60.0


class Kubelet(pods_grpc.PodResourcesListerServicer):
    """A kubelet. Container n has unit n. calls: how many were answered; most: how many at a time.
    goes_on: it answers. fails: it rejects all calls.
    """

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.calls = self.now = self.most = 0
        self.came, self.goes_on = asyncio.Event(), asyncio.Event()
        self.goes_on.set()
        self.fails = False

    async def List(self, request: Any, context: Any) -> pods.ListPodResourcesResponse:  # type: ignore[override]
        self.calls, self.now = self.calls + 1, self.now + 1
        self.most = max(self.most, self.now)
        answer = pods.ListPodResourcesResponse(pod_resources=map(_pod, self.numbers))
        self.came.set()
        await self.goes_on.wait()
        self.now -= 1
        if self.fails:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return answer


def _pod(number: int) -> pods.PodResources:
    devices = [
        pods.ContainerDevices(resource_name=one.name, device_ids=[f"gpu-0.{number}"])
        for one in WORDS.resources
    ]
    containers = [pods.ContainerResources(name="main", devices=devices)]
    return pods.PodResources(namespace="team", name=f"pod-{number}", containers=containers)


class Node:
    """A kubelet, and its list."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubelet = Kubelet()
        self.list = KubeletList(folder / "kubelet.sock", WORDS)

    async def listed(self) -> list[str]:
        return [one.pod for one in await asyncio.wait_for(self.list.listed(), _SECONDS)]


@pytest_asyncio.fixture
async def node() -> AsyncIterator[Node]:
    with short_folder() as folder:
        node = Node(folder)
        server = grpc.aio.server()
        pods_grpc.add_PodResourcesListerServicer_to_server(node.kubelet, server)
        server.add_insecure_port(f"unix:{folder}/kubelet.sock")
        await server.start()
        try:
            yield node
        finally:
            node.kubelet.goes_on.set()
            await server.stop(None)


class _Daemon:
    """A server that grants everything."""

    report = Object(address="here:1")

    async def grant(self, *_: Any) -> None:
        pass


async def test_containers_that_start_together_share_a_call(node: Node) -> None:
    """A kubelet rejects more than ten calls at once, and the containers would not start."""
    daemon: Any = _Daemon()
    keeper = Keeper(WORDS, HeldFolder(node.folder / "units"), daemon, node.list, b"k" * 32)
    node.kubelet.numbers = [*range(30)]
    units = [[f"gpu-0.{number}"] for number in node.kubelet.numbers]
    for ids in units:
        await keeper.allocate(ids)
    starts = asyncio.gather(*(keeper.start(ids) for ids in units))
    await asyncio.wait_for(starts, _SECONDS)
    assert node.kubelet.calls <= 2
    assert node.kubelet.most == 1


async def test_who_asks_during_a_call_gets_the_answer_of_the_next(node: Node) -> None:
    """The container for which it asks may be too new for the one that runs."""
    node.kubelet.goes_on.clear()
    first = asyncio.ensure_future(node.listed())
    await asyncio.wait_for(node.kubelet.came.wait(), _SECONDS)
    node.kubelet.numbers = [1]
    later = [asyncio.ensure_future(node.listed()) for _ in range(5)]
    await asyncio.sleep(0)
    node.kubelet.goes_on.set()
    assert await first == []
    assert await asyncio.gather(*later) == [["pod-1"]] * 5
    assert node.kubelet.calls == 2
    assert node.kubelet.most == 1


async def test_a_call_that_fails_fails_for_all_who_share_it(node: Node) -> None:
    node.kubelet.fails = True
    answers = await asyncio.gather(*(node.listed() for _ in range(5)), return_exceptions=True)
    assert [type(one) for one in answers] == [PrepareError] * 5
    assert "rejected by rate limit" in str(answers[0])
    assert node.kubelet.calls == 1
    node.kubelet.fails = False
    assert await node.listed() == []


async def test_who_takes_its_question_back_takes_it_from_no_other(node: Node) -> None:
    node.kubelet.goes_on.clear()
    leaves, stays = (asyncio.ensure_future(node.listed()) for _ in range(2))
    await asyncio.wait_for(node.kubelet.came.wait(), _SECONDS)
    leaves.cancel()
    node.kubelet.goes_on.set()
    assert await stays == []


async def test_a_call_that_fails_when_all_have_gone_writes_nothing(node: Node) -> None:
    said: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: said.append(what))
    node.kubelet.fails = True
    node.kubelet.goes_on.clear()
    leaves = asyncio.ensure_future(node.listed())
    await asyncio.wait_for(node.kubelet.came.wait(), _SECONDS)
    leaves.cancel()
    node.kubelet.goes_on.set()
    with pytest.raises(PrepareError):
        await node.listed()
    node.list = KubeletList(node.folder, WORDS)
    gc.collect()
    assert said == []
