"""Changes of executable graphs at the worker, by a client that does not keep its promises."""

from __future__ import annotations

import struct

from worker.client import LEGACY, Client, session
from worker.graphs import EMPTY, MAGIC, copy, fill, graph, instantiate, node, put

PORTION = 256 << 10  # of a copy with a host side
EXEC = 50
INVALID_HANDLE = 400


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
    with session() as client:
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
        assert [instantiate(client, EXEC + i, before) for i in range(8)] == [0] * 8
