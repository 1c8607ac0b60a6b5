"""What a client's graphs may take: memory that nothing charges for is counted in nodes and handles."""

from __future__ import annotations

import struct
from contextlib import AbstractContextManager

from worker.client import Client, session
from worker.graphs import (
    EMPTY,
    MAGIC,
    chain,
    conditional,
    graph,
    instantiate,
    wait_value,
    write_value,
)
from worker.leased import held, leased

OUT_OF_MEMORY = 2
EXEC, GRAPH = 50, 500
PAGE = 4096
# The true bound is tests/worker/test_graphs.py's: to reach it takes long.
NODES = 4096
MANY = MAGIC + graph([EMPTY] * (NODES // 8))


def _bounded(nodes: int = NODES) -> AbstractContextManager[Client]:
    """A session whose graphs may have so many nodes."""
    return session("--graph-nodes", str(nodes))


def _conditionals(client: Client, count: int, graph_: int = GRAPH) -> set[int]:
    """The results of making so many conditional handles."""
    values = {"graph": graph_, "default_value": 1, "flags": 1}
    results = set()
    for begin in range(0, count, 1000):
        calls = [
            client.post("rgpuGraphConditional", **values)  # type: ignore[arg-type]
            for _ in range(min(1000, count - begin))
        ]
        results |= {client.wait(call).status for call in calls}
    return results


def test_the_values_of_conditional_nodes_are_charged() -> None:
    with leased() as (client, page):
        used, on_device = page.used(), held(client, page)
        assert _conditionals(client, 1024) == {0}
        assert page.used() - used == 2 * PAGE
        assert held(client, page) - on_device == 2 * PAGE


def test_values_of_conditional_nodes_are_refused_if_the_lease_is_full() -> None:
    with leased() as (client, page):
        page.set_limit(page.used() + PAGE)
        assert _conditionals(client, 512) == {0}
        assert _conditionals(client, 1) == {OUT_OF_MEMORY}
        page.set_limit(page.used() + PAGE)
        assert _conditionals(client, 1) == {0}


def _until_refused(client: Client, definition: bytes, most: int) -> int:
    results = []
    for i in range(most):
        results.append(instantiate(client, EXEC + i, definition))
        if results[-1] != 0:
            break
    assert results[-1] == OUT_OF_MEMORY, results
    return len(results) - 1


def test_conditional_handles_count_as_nodes() -> None:
    with _bounded() as client:
        assert _conditionals(client, 40) == {0}
        assert _until_refused(client, MANY, 8) == 7
        client.post("rgpuGraphDestroy", graph=GRAPH)
        assert instantiate(client, EXEC + 7, MANY) == 0


def test_conditional_handles_go_with_the_executable_that_took_them() -> None:
    with _bounded() as client:
        values = {"graph": GRAPH, "default_value": 1, "flags": 1}
        handle = int(client.call("rgpuGraphConditional", **values)["handle"])  # type: ignore[arg-type]
        assert instantiate(client, EXEC, chain(conditional(handle, [[EMPTY]])), GRAPH) == 0
        assert [instantiate(client, EXEC + 1 + i, MANY) for i in range(8)][-1] == OUT_OF_MEMORY
        client.post("rgpuGraphExecDestroy", exec=EXEC)
        client.call("rgpuContextSynchronize", ctx=10)
        assert instantiate(client, EXEC + 8, MANY) == 0


def test_edges_count_as_nodes() -> None:
    nodes = 200
    edges = [(i, j) for i in range(nodes) for j in range(i + 1, nodes)]
    weight = nodes + len(edges) // 8
    with _bounded(2 * weight + 1) as client:
        assert _until_refused(client, MAGIC + graph([EMPTY] * nodes, edges), 4) == 2


def test_memory_operations_count_as_nodes() -> None:
    with _bounded(2 * 10 * (1 + 256 // 8)) as client:
        memory = client.alloc(PAGE)
        kind, one = write_value(memory, 1)
        batch = (kind, struct.pack("<II", 0, 256) + 256 * one[8:])
        assert _until_refused(client, MAGIC + graph([batch] * 10), 4) == 2


def test_values_are_used_again_when_their_graph_is_gone() -> None:
    with leased() as (client, page):
        used, on_device = page.used(), held(client, page)
        for _ in range(3):
            assert _conditionals(client, 512) == {0}
            client.post("rgpuGraphDestroy", graph=GRAPH)
        for turn in range(3):  # an executable takes them along
            values = {"graph": GRAPH + 1, "default_value": 1, "flags": 1}
            handles = [int(client.call("rgpuGraphConditional", **values)["handle"])  # type: ignore[arg-type]
                       for _ in range(512)]  # fmt: skip
            nodes = [conditional(handle, [[EMPTY]]) for handle in handles]
            assert instantiate(client, EXEC + turn, MAGIC + graph(nodes), GRAPH + 1) == 0
            client.post("rgpuGraphDestroy", graph=GRAPH + 1)
            client.post("rgpuGraphExecDestroy", exec=EXEC + turn)
            client.call("rgpuContextSynchronize", ctx=10)
        assert page.used() - used == PAGE
        assert held(client, page) - on_device == PAGE


def test_a_refused_value_leaves_no_graph() -> None:
    with leased() as (client, page):
        page.set_limit(page.used())
        assert _conditionals(client, 3) == {OUT_OF_MEMORY}
        client.post("rgpuGraphDestroy", graph=GRAPH)
        assert client.result("rgpuMemGetInfo").status == 400  # there was nothing to destroy


def _waiting(client: Client) -> int:
    """Launches EXEC on stream 70, where it waits for a 1 at the address that is returned; stream 71
    is there to write it.
    """
    memory = client.alloc(PAGE)
    client.upload(memory, bytes(4))
    client.post("rgpuStreamCreate", stream=70, flags=1, priority=0)
    client.post("rgpuStreamCreate", stream=71, flags=1, priority=0)
    assert instantiate(client, EXEC, chain(wait_value(memory, 1))) == 0
    client.post("rgpuGraphLaunch", exec=EXEC, stream=70, delivers=0)
    return memory


def test_executables_count_until_their_work_has_ended() -> None:
    """A client that destroys graphs which wait for a value keeps them on the device."""
    with _bounded() as client:
        memory = _waiting(client)
        client.post("rgpuGraphExecDestroy", exec=EXEC)
        count = _until_destroying_is_refused(client)
        assert count < TURNS
        client.write_value(71, memory, 1)
        client.call("rgpuStreamSynchronize", stream=70)
        assert instantiate(client, EXEC, MANY) == 0


def test_graphs_whose_work_has_ended_leave_their_room_at_once() -> None:
    """The driver destroys them on another thread, which the client does not wait for."""
    nodes = 1 << 17
    large = MAGIC + graph([EMPTY] * (nodes // 4))
    with _bounded(nodes + 16) as client:  # and what waits
        memory = _waiting(client)
        assert [instantiate(client, EXEC + 1 + i, large) for i in range(4)] == [0] * 4
        for i in range(5):
            client.post("rgpuGraphExecDestroy", exec=EXEC + i)
        assert instantiate(client, EXEC, large) == OUT_OF_MEMORY
        client.write_value(71, memory, 1)
        client.call("rgpuStreamSynchronize", stream=70)
        assert [instantiate(client, EXEC + i, large) for i in range(4)] == [0] * 4


TURNS = 16


def _until_destroying_is_refused(client: Client) -> int:
    for n in range(TURNS + 1):
        if instantiate(client, EXEC, MANY) == OUT_OF_MEMORY:
            return n
        client.post("rgpuGraphExecDestroy", exec=EXEC)
    raise AssertionError("it was never refused")
