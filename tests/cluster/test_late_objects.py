"""Objects that come later than those that depend on them, or change between two looks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace as Object
from typing import Any

import httpx2
import pytest
from lightkube import ApiError

from rgpu_cluster.kubernetes.agent import publisher
from rgpu_cluster.kubernetes.agent.publisher import Publisher
from rgpu_cluster.kubernetes.legacy import elastic
from rgpu_cluster.kubernetes.legacy.controllers import ElasticClaims, Gpu


def missing() -> ApiError:
    request = httpx2.Request("GET", "https://x")
    status = {"kind": "Status", "code": 404, "message": "not found"}
    return ApiError(request=request, response=httpx2.Response(404, json=status, request=request))


class Nodes:
    """An API server that has one Node, or none."""

    def __init__(self) -> None:
        self.node: Any = None
        self.asked = 0

    async def get(self, *_: Any, **__: Any) -> Any:
        self.asked += 1
        if self.node is None:
            raise missing()
        return self.node


def test_a_node_that_comes_after_its_agent_owns_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(publisher.time, "monotonic", lambda: now)
    api = Nodes()
    made = Publisher(api, "gpu7", lambda: None)  # type: ignore[arg-type]

    def look(seconds: float) -> tuple[bool, str, int]:
        nonlocal now
        now += seconds
        asyncio.run(made.look())
        return made.owner is not None, made.zone, api.asked

    assert look(0) == (False, "", 1)
    api.node = Object(metadata=Object(uid="uid-1", labels=None))
    assert look(1) == (False, "", 1)
    assert look(30) == (True, "", 2)
    # The label of its zone comes later still.
    api.node.metadata.labels = {"topology.kubernetes.io/zone": "z1"}
    assert look(30) == (True, "z1", 3)
    assert look(30) == (True, "z1", 3)
    assert look(300) == (True, "z1", 4)


CLAIM = {
    "metadata": {"name": "mine", "namespace": "team", "uid": "uid-mine"},
    "apiVersion": elastic.API, "kind": "ElasticGPUClaim",
}  # fmt: skip


def on(card: str) -> list[dict[str, Any]]:
    """The ElasticGPUs of a claim that has this card."""
    row = {"pool": "gpu7", "device": card, "consumedCapacity": {"core": "30", "memory": "1Gi"}}
    made = {"status": {"allocation": {"devices": {"results": [row]}}}}
    return list(elastic.shown(CLAIM, made))


class Shown:
    """An API server with ElasticGPUs. calls: what was asked of it."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}
        self.calls: list[str] = []

    async def create(self, made: Any) -> None:
        self.calls.append("create")
        # Its status is written by a call of its own.
        content = {k: v for k, v in made.items() if k != "status"}
        content["metadata"] = {**content["metadata"], "uid": "uid-shown"}
        self.there[content["metadata"]["name"]] = content

    async def get(self, kind: Any, name: str) -> Any:
        return Gpu(self.there[name])

    async def delete(self, kind: Any, name: str) -> None:
        self.calls.append("delete")
        del self.there[name]

    async def patch(self, *_: Any, **__: Any) -> None:
        self.calls.append("status")


def test_an_elastic_gpu_shows_the_card_that_its_claim_has_now() -> None:
    """The claim lost its card and got another one before anybody looked."""

    async def work() -> tuple[list[str], list[str]]:
        api = Shown()
        controller = ElasticClaims(api)  # type: ignore[arg-type]
        shown = []
        for card in ("gpu-0", "gpu-0", "gpu-1"):
            await controller._show(("team", "mine"), on(card))
            (found,) = api.there.values()
            found["status"] = {"phase": elastic.BOUND}
            controller._shown.store["", found["metadata"]["name"]] = Gpu(found)
            shown.append(found["spec"]["gpuShare"]["gpuName"])
        return shown, api.calls

    shown, calls = asyncio.run(work())
    assert shown == ["gpu7/gpu-0", "gpu7/gpu-0", "gpu7/gpu-1"]
    assert calls == ["create", "status", "delete", "create", "status"]
