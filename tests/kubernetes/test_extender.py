"""The scheduler extender: nodes judged by the core's pool, and pods bound with their leases."""

from __future__ import annotations

import asyncio
import copy
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cluster.samples import GIB, PERCENT, node, pool_of, put
from lightkube import ApiError
from lightkube.resources.core_v1 import Node, Pod
from msgspec import DecodeError

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.request import Client, Mode
from rgpu_cluster.kubernetes.binding import Extender
from rgpu_cluster.kubernetes.extender import (
    Extending,
    Judge,
    binding_of,
    filtered,
    prioritized,
    question_of,
)
from rgpu_cluster.kubernetes.web import Server

GOLDEN = Path(__file__).parent / "golden"


def asked(**changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((GOLDEN / "extender.json").read_text())
    return {**found, **changes}


def two(**options: Any) -> Pool:
    """gpu-1 is full, gpu-2 has half a card; `client` is no node of the pool."""
    pool = pool_of(node("gpu-1", rack="r1"), node("gpu-2", rack="r2", **options))
    put(pool, ("gpu-1", 0), 1, share_ppm=90 * PERCENT)
    put(pool, ("gpu-2", 0), 2, share_ppm=50 * PERCENT)
    return pool


def answers(
    message: dict[str, Any], pool: Pool, options: Extending | None = None
) -> tuple[Any, Any]:
    question = question_of(message)
    judge = Judge(pool, Paths(), question, options or Extending())
    return filtered(judge, question), prioritized(judge, question)


def test_any_node_with_a_path_to_a_free_card_may_run_the_pod() -> None:
    found, scores = answers(asked(), two())
    assert found["NodeNames"] == ["gpu-1", "gpu-2", "client"]
    assert found["Error"] == ""
    by_node = {one["Host"]: one["Score"] for one in scores}
    # The card's own node is best.
    assert by_node["gpu-2"] == 10
    assert min(by_node.values()) == 0


def test_local_cards_alone_are_what_the_originals_did() -> None:
    found, scores = answers(asked(), two(), Extending(farthest=Mode.LOCAL))
    assert found["NodeNames"] == ["gpu-2"]
    assert found["FailedNodes"]["gpu-1"].startswith(
        "rgpu: 1 card cannot be used, because each has too little"
    )
    assert "the program is on no node of the pool" in found["FailedAndUnresolvableNodes"]["client"]
    assert {one["Host"]: one["Score"] for one in scores} == {"gpu-1": 0, "gpu-2": 10, "client": 0}


def test_what_no_pool_can_take_is_never_resolved_by_preemption() -> None:
    message = asked()
    message["Pod"]["spec"]["containers"][0]["resources"]["limits"]["tencent.com/vcuda-memory"] = (
        "3200"
    )
    message["Pod"]["spec"]["containers"][0]["resources"]["requests"]["tencent.com/vcuda-memory"] = (
        "3200"
    )
    found, _ = answers(message, two())
    assert set(found["FailedAndUnresolvableNodes"]) == {"gpu-1", "gpu-2", "client"}
    assert found["FailedNodes"] == {}


def test_whole_nodes_are_answered_with_nodes_and_their_racks_count() -> None:
    nodes = [{"metadata": {"name": name, "labels": {"rgpu.dev/rack": rack}}}
             for name, rack in (("far", "r9"), ("beside", "r2"))]  # fmt: skip
    found, scores = answers(asked(Nodes={"items": nodes}, NodeNames=None), two())
    assert found["Nodes"]["items"] == nodes
    assert found["NodeNames"] is None
    assert {one["Host"]: one["Score"] for one in scores} == {"far": 0, "beside": 10}


def test_a_pod_without_old_words_may_run_anywhere() -> None:
    message = asked()
    message["Pod"]["spec"]["containers"][0]["resources"] = {}
    found, scores = answers(message, two())
    assert found["NodeNames"] == ["gpu-1", "gpu-2", "client"]
    assert {one["Score"] for one in scores} == {0}


@pytest.mark.parametrize(
    "message",
    [None, [], {}, {"Pod": None}, asked(NodeNames=None), asked(NodeNames=[1]), asked(NodeNames=None, Nodes={"items": [{}]}),
     asked(NodeNames=["x"] * 20_001)],
)  # fmt: skip
def test_what_are_no_arguments_is_refused(message: Any) -> None:
    with pytest.raises(RequestError):
        question_of(message)


@pytest.mark.parametrize(
    "message", [None, {}, {"PodName": "a", "PodNamespace": "b", "PodUID": "c", "Node": ""}]
)
def test_what_is_no_binding_is_refused(message: Any) -> None:
    with pytest.raises(RequestError, match="ExtenderBindingArgs"):
        binding_of(message)


class Room:
    """A cluster of one pool that grants at once, or refuses."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.paths = Paths()
        self.granted: list[Client] = []
        self.released: list[str] = []
        self.refuses = ""

    async def grant(self, request: Any) -> dict[str, str]:
        if self.refuses:
            raise RequestError(self.refuses)
        self.granted.append(request.client)
        return {
            "rgpu.dev/server": "gpu-2:7700",
            "rgpu.dev/lease": request.id,
            "rgpu.dev/device": "0",
        }

    def release(self, request: str) -> None:
        self.released.append(request)


def test_the_scheduler_asks_over_http() -> None:
    """As kube-scheduler does: POST with JSON, the paths of its policy, one connection."""

    async def ask(reader: Any, writer: Any, path: str, message: Any) -> Any:
        body = json.dumps(message).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        said = await reader.readuntil(b"\r\n\r\n")
        length = next(
            one for one in said.split(b"\r\n") if one.lower().startswith(b"content-length")
        )
        assert said.startswith(b"HTTP/1.1 200")
        return json.loads(await reader.readexactly(int(length.split()[1])))

    async def work() -> None:
        server = Server(Extender(object(), Room(two())).routes())  # type: ignore[arg-type]
        port = await server.start("127.0.0.1", 0, None)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        found = await ask(reader, writer, "/filter", asked())
        assert found["NodeNames"] == ["gpu-1", "gpu-2", "client"]
        scores = await ask(reader, writer, "/prioritize", asked())
        assert max(one["Score"] for one in scores) == 10
        wrong = copy.deepcopy(asked())
        wrong["Pod"]["spec"]["containers"][0]["resources"] = {
            "limits": {"tencent.com/vcuda-core": "150"}
        }
        refused = await ask(reader, writer, "/filter", wrong)
        assert refused["Error"].startswith("rgpu: container c: tencent.com/vcuda-core 150")
        writer.close()
        await server.close()

    asyncio.run(asyncio.wait_for(work(), 20))


class Api:
    """An API server with one pod.  fails: what it raises when the pod is to be bound."""

    def __init__(self, fails: Exception | None = None, node: str = "") -> None:
        self.fails = fails
        content = copy.deepcopy(asked()["Pod"])
        content["spec"]["nodeName"] = node
        self.pod = Pod.from_dict(content)
        self.written: list[str] = []

    async def get(self, kind: Any, name: str, namespace: str = "") -> Any:
        if kind is Node:
            return Node.from_dict({"metadata": {"name": name}})
        return self.pod

    async def patch(self, *_: Any, **__: Any) -> None:
        self.written.append("told")

    async def create(self, *_: Any, **__: Any) -> None:
        if not isinstance(self.fails, DecodeError | None):
            raise self.fails
        self.written.append("bound")
        if self.fails is not None:
            raise self.fails


def gone() -> ApiError:
    request = httpx2.Request("POST", "https://x")
    status = {"kind": "Status", "code": 404, "message": 'pods "old" not found'}
    return ApiError(request=request, response=httpx2.Response(404, json=status, request=request))


BINDING = {
    "PodName": "old", "PodNamespace": "team", "PodUID": "0b3f7a52-62b5-4a52-9d56-4a0d6f7d5a01",
    "Node": "client",
}  # fmt: skip


@pytest.mark.parametrize(
    ("server", "refuses", "error", "released"),
    [
        (Api(), "", "", False),
        (Api(), "there is no room", "rgpu: there is no room", True),
        (Api(gone()), "", 'rgpu: pods "old" not found', True),
        # Nobody knows whether the pod is bound, so it keeps its lease.
        (Api(TimeoutError()), "", "rgpu: the API server did not answer within 15 s", False),
        # lightkube cannot read what the API server answers when the pod is bound.
        (Api(DecodeError("Object missing required field `target`")), "", "", False),
        (Api(node="client"), "never asked", "", False),
        (Api(node="other"), "never asked", "rgpu: pod old is on node other", False),
    ],
)
def test_a_lease_goes_back_only_if_the_pod_is_not_bound(
    server: Api, refuses: str, error: str, released: bool
) -> None:
    room = Room(two())
    room.refuses = refuses
    extender = Extender(server, room)  # type: ignore[arg-type]
    assert asyncio.run(extender.bind(BINDING)) == {"Error": error}
    assert room.released == ([BINDING["PodUID"]] if released else [])
    assert server.written == (
        ["told", "bound"] if room.granted and not error else ["told"] if room.granted else []
    )


def test_a_pod_that_ended_or_went_gives_its_lease_back() -> None:
    room = Room(two())
    extender = Extender(Api(), room)  # type: ignore[arg-type]
    pod = Api().pod
    extender._pod_changed(None, pod)
    assert not room.released
    ended = Pod.from_dict({**pod.to_dict(), "status": {"phase": "Succeeded"}})
    extender._pod_changed(pod, ended)
    extender._pod_changed(ended, None)
    assert room.released == [BINDING["PodUID"]] * 2


def test_a_thousand_nodes_are_judged_in_time() -> None:
    """The scheduler waits 5 s for an extender by default."""
    pool = pool_of(
        *(node(f"gpu-{i}", cards=8, memory=80 * GIB, rack=f"r{i % 16}") for i in range(100))
    )
    names = [f"gpu-{i}" for i in range(100)] + [f"client-{i}" for i in range(900)]
    question = question_of(asked(NodeNames=names))
    judge = Judge(pool, Paths(), question, Extending())
    assert len(filtered(judge, question)["NodeNames"]) == 1000
    # One decision for each node of the pool, and one for all others.
    assert len(judge._known) == 101
