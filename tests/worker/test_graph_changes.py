"""Changes of executable graphs at the worker, by a client that does not keep its promises."""

from __future__ import annotations

import struct

from worker.client import LEGACY, Client, session
from worker.graphs import EMPTY, MAGIC, conditional, copy, fill, graph, instantiate, node, put

PORTION = 256 << 10  # of a copy with a host side
EXEC = 50
INVALID_HANDLE = 400
NOT_SUPPORTED = 801


def _update(client: Client, definition: bytes, exec_: int = EXEC) -> int:
    put(client, 9, definition)
    return client.result("rgpuGraphUpdate", exec=exec_, image=9).status


def _set_node(client: Client, number: int, changed: bytes) -> int:
    return client.result("rgpuGraphSetNode", exec=EXEC, node=number, parameters=changed).status


def _words(client: Client, address: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}I", client.download(address, 4 * count))


def _launch(client: Client) -> int:
    client.post("rgpuGraphLaunch", exec=EXEC, stream=LEGACY, delivers=0)
    return client.result("rgpuStreamSynchronize", stream=LEGACY).status


def test_an_update_in_another_order_keeps_the_numbers_of_the_nodes() -> None:
    """The driver pairs the nodes of the two definitions in the order in which they run."""
    with session() as client:
        memory = client.alloc(4096)
        client.upload(memory, bytes(4096))
        first, second = fill(memory, 1, 1), fill(memory + 4, 2, 1)
        assert instantiate(client, EXEC, MAGIC + graph([first, second], [(0, 1)])) == 0
        assert _update(client, MAGIC + graph([first, second], [(1, 0)])) == 0
        assert _set_node(client, 0, node(fill(memory + 8, 3, 1))) == 0
        assert _launch(client) == 0
        assert _words(client, memory, 3) == (0, 2, 3)


def test_a_copy_keeps_its_portions_in_an_update() -> None:
    """A node must not change the driver's nodes of another copy, nor of what lies behind them."""
    with session() as client:
        memory = client.alloc(64 * PORTION)
        short, long = copy(memory, 0, PORTION), copy(memory, 0, 16 * PORTION)
        moved = node(copy(memory + PORTION, 0, 16 * PORTION))
        assert instantiate(client, EXEC, MAGIC + graph([short, long], [(0, 1)])) == 0
        assert _update(client, MAGIC + graph([long, short], [(1, 0)])) == 0
        assert _set_node(client, 0, moved) == 0
        assert client.call("rgpuPing", echo=7)["echo"] == 7


def test_an_executable_that_goes_during_its_update_stays_gone() -> None:
    """The worker instantiates again without its lock, so another thread's command comes between."""
    most = 65_536
    before = MAGIC + graph([EMPTY] * most)
    after = MAGIC + graph([EMPTY] * most, [(0, 1)])
    with session("--graph-nodes", str(2 * most)) as client:
        for _ in range(20):
            assert instantiate(client, EXEC, before) == 0
            put(client, 9, after)
            update = client.post("rgpuGraphUpdate", exec=EXEC, image=9, thread=1)
            client.post("rgpuGraphExecDestroy", exec=EXEC, thread=2)
            status = client.wait(update).status
            client.wait(client.post("rgpuPing", echo=1, thread=2))
            assert status in (0, INVALID_HANDLE)
            if status == INVALID_HANDLE:
                break
        assert status == INVALID_HANDLE, "the destruction never came between"
        client.call("rgpuContextSynchronize", ctx=10)
        # Nothing is left of it: the session has room for all nodes again.
        assert [instantiate(client, EXEC + i, before) for i in range(2)] == [0, 0]


def _conditional(client: Client, id_: int, value: int) -> int:
    answer = client.call("rgpuGraphConditional", graph=id_, default_value=value, flags=1)
    return int(answer["handle"])  # type: ignore[arg-type]


def _update_with(client: Client, definition: bytes, id_: int, exec_: int = EXEC) -> int:
    put(client, 9, definition)
    return client.result("rgpuGraphUpdateWith", exec=exec_, image=9, graph=id_).status


def test_an_update_with_handles_of_another_graph_takes_them() -> None:
    """Whatever comes of it: a graph of handles is used once."""
    with session() as client:
        memory = client.alloc(4096)
        client.upload(memory, bytes(4096))

        def chosen(id_: int, value: int) -> bytes:
            return MAGIC + graph([conditional(_conditional(client, id_, value), [[body]])])

        body = fill(memory, 5, 1)
        assert instantiate(client, EXEC, chosen(500, 0), 500) == 0
        assert _launch(client) == 0
        assert _words(client, memory, 1) == (0,)
        good = chosen(501, 1)
        for wrong in (0, 500, 77):  # none, one that is taken, one that never was
            assert _update_with(client, good, wrong) == NOT_SUPPORTED
        assert _update_with(client, good, 501, EXEC + 1) == INVALID_HANDLE
        assert _update_with(client, good, 501) == 0
        assert _launch(client) == 0
        assert _words(client, memory, 1) == (5,)
        assert _update_with(client, good, 501) == NOT_SUPPORTED
        # Other kinds of nodes, a handle that the device does not know, and bytes of no definition.
        chosen(502, 1)
        assert _update_with(client, MAGIC + graph([EMPTY]), 502) == 1
        _conditional(client, 503, 1)
        assert _update_with(client, MAGIC + graph([conditional(12345, [[body]])]), 503) != 0
        _conditional(client, 504, 1)
        assert _update_with(client, b"garbage", 504) != 0
        assert _launch(client) == 0


def test_many_updates_with_other_handles_leave_nothing_behind() -> None:
    with session("--graph-nodes", str(8 * 512)) as client:
        memory = client.alloc(4096)
        body = fill(memory, 5, 1)
        for turn in range(300):
            id_ = 500 + turn
            handle = _conditional(client, id_, 1)
            definition = MAGIC + graph([conditional(handle, [[body]])])
            if turn == 0:
                assert instantiate(client, EXEC, definition, id_) == 0
            else:
                assert _update_with(client, definition, id_) == 0
            client.post("rgpuGraphDestroy", graph=id_)
            client.post("rgpuGraphLaunch", exec=EXEC, stream=LEGACY, delivers=0)
        client.post("rgpuGraphExecDestroy", exec=EXEC)
        client.call("rgpuContextSynchronize", ctx=10)
        # The session has room for all nodes again.
        many = MAGIC + graph([EMPTY] * 512)
        assert [instantiate(client, 1000 + i, many) for i in range(8)] == [0] * 8
