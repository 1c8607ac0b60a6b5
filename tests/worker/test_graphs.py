"""Graphs at the worker: what a client that does not play by the rules can make of them."""

from __future__ import annotations

import random
import struct

import pytest

from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import LEGACY, Client, session
from worker.graphs import (
    EMPTY,
    HOST,
    MAGIC,
    Kind,
    chain,
    child,
    conditional,
    copy,
    fill,
    graph,
    instantiate,
    kernel,
    node,
    put,
    record,
    wait,
    write_value,
)

INVALID_VALUE = 1
OUT_OF_MEMORY = 2
INVALID_IMAGE = 200
INVALID_CONTEXT = 201
INVALID_HANDLE = 400
NOT_SUPPORTED = 801
EXEC, EVENT, STREAM = 50, 60, 70
BYTES = 4096


def _alive(client: Client) -> None:
    assert client.call("rgpuPing", echo=7)["echo"] == 7


def _memory(client: Client, size: int = BYTES) -> int:
    return int(client.call("rgpuMemAlloc", bytes=size)["dptr"])  # type: ignore[arg-type]


def _download(client: Client, address: int, size: int) -> bytes:
    rows = {"src": address, "pitch": size, "width": size, "height": 1}
    answer = client.result("rgpuCopyDtoH", stream=LEGACY, **rows)  # type: ignore[arg-type]
    assert answer.status == 0
    return answer.data


def _launch(client: Client, delivers: int = 0, exec_: int = EXEC) -> int:
    return client.post("rgpuGraphLaunch", exec=exec_, stream=STREAM, delivers=delivers)


def _stream(client: Client) -> None:
    client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)


def _synchronized(client: Client) -> int:
    return client.result("rgpuStreamSynchronize", stream=STREAM).status


def _answer_pull(client: Client, data: bytes) -> None:
    """Answers the next PULL with the bytes that it asks for."""
    fields, _ = client.notice(Notice.PULL)
    begin, size = int(fields["offset"]), int(fields["bytes"])
    values = {"pull": fields["pull"], "offset": begin}
    message = encode_message(Control.PULL_DATA, values, bulk=data[begin : begin + size])
    client.control.send(message)


def test_a_graph_runs_as_often_as_it_is_launched() -> None:
    with session() as client:
        _stream(client)
        memory, flag = _memory(client), _memory(client)
        client.post("rgpuEventCreate", event=EVENT, flags=0)
        nodes = (
            fill(memory, 5, 16), child([copy(memory + 64, memory, 64), EMPTY]), record(EVENT),
            wait(EVENT), write_value(flag, 9),
        )  # fmt: skip
        assert instantiate(client, EXEC, chain(*nodes)) == 0
        for turn in range(3):
            client.post(
                "rgpuMemset", dst=memory, pitch=128, element_bytes=1, value=0, width=128, height=1,
                stream=LEGACY, synchronous=1,
            )  # fmt: skip
            _launch(client)
            assert _synchronized(client) == 0, turn
            assert _download(client, memory, 128) == 32 * struct.pack("<I", 5)
        assert client.result("rgpuEventQuery", event=EVENT, version=3, notify=0).status == 0
        assert _download(client, flag, 4) == struct.pack("<I", 9)


def test_host_sides_are_asked_for_and_delivered_at_each_launch() -> None:
    size = 600_000  # three pieces of staging memory
    with session() as client:
        _stream(client)
        memory = _memory(client, size)
        nodes = (copy(memory, 0, size), HOST, copy(0, memory, size))
        assert instantiate(client, EXEC, chain(*nodes)) == 0
        for turn in range(3):
            sent = random.Random(turn).randbytes(size)
            launch = _launch(client, 1)
            waiting = client.post("rgpuStreamSynchronize", stream=STREAM)
            for _ in range(3):
                _answer_pull(client, sent)
            fields, frame = client.notice(Notice.GRAPH_CALLBACK)
            assert (fields["node"], frame.header.seq) == (1, launch)
            done = {"callback": fields["callback"]}
            client.control.send(encode_message(Control.CALLBACK_DONE, done))
            assert client.wait(waiting).status == 0
            # The offsets count the bytes of both host sides.
            assert bytes(client.deliveries[launch][size:]) == sent


def test_a_launch_that_expects_nothing_may_not_ask() -> None:
    with session() as client:
        _stream(client)
        assert instantiate(client, EXEC, chain(HOST)) == 0
        _launch(client, 0)
        assert _synchronized(client) == INVALID_VALUE
        _alive(client)


def test_a_failed_launch_ends_what_the_client_expects() -> None:
    with session() as client:
        _stream(client)
        lost = _launch(client, 1, exec_=99)
        _alive(client)
        while lost not in client.deliveries:
            client.take(client.frame())
        assert client.deliveries[lost] == b""
        assert _synchronized(client) == INVALID_HANDLE


FOREIGN = {
    "a function": kernel(99),
    "a kernel": kernel(kernel=99),
    "an event to record": record(99),
    "an event to wait for": wait(99),
}
OUTSIDE = {
    "a set": fill(0x1000, 1, 4),
    "a copy": copy(0x1000, 0x2000, 4),
    "the target of host bytes": copy(0x1000, 0, 4),
    "the source of host bytes": copy(0, 0x1000, 4),
    "a value": write_value(0x1000, 1),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_foreign_handle_is_refused_with_the_node(what: str) -> None:
    with session() as client:
        put(client, 9, chain(EMPTY, FOREIGN[what]))
        answer = client.result("rgpuGraphInstantiate", exec=EXEC, image=9, graph=0, flags=0)
        assert (answer.status, answer.values["node"]) == (INVALID_HANDLE, 1)
        _alive(client)


@pytest.mark.parametrize("what", OUTSIDE)
def test_an_address_outside_the_session_is_refused(what: str) -> None:
    with session() as client:
        assert instantiate(client, EXEC, chain(OUTSIDE[what])) == INVALID_VALUE
        _alive(client)


@pytest.mark.parametrize("context", [11, 0xFFFFFFFF])
def test_a_context_that_does_not_exist_is_refused(context: int) -> None:
    with session() as client:
        memory = _memory(client)
        bad = chain(fill(memory, 1, 4, context=context))
        assert instantiate(client, EXEC, bad) == INVALID_CONTEXT
        _alive(client)


def test_lengths_that_overflow_are_refused() -> None:
    with session() as client:
        memory = _memory(client)
        most = (1 << 64) - 1
        for bad in (
            copy(memory, memory, most), copy(memory, memory, 1 << 33, 1 << 33),
            copy(memory, 0, most), copy(0, memory, 1 << 33, 1 << 33), fill(memory, 0, 1 << 62),
            copy(memory, 0, BYTES + 1), copy(memory, 0, 0),
        ):  # fmt: skip
            assert instantiate(client, EXEC, chain(bad)) == INVALID_VALUE
        _alive(client)


def test_cycles_and_double_edges_are_refused() -> None:
    with session() as client:
        for edges in ([(0, 1), (1, 0)], [(0, 1), (0, 1)], [(0, 0)], [(0, 2)]):
            bad = MAGIC + graph([EMPTY, EMPTY], edges)
            assert instantiate(client, EXEC, bad) == INVALID_VALUE
        _alive(client)


def test_damaged_definitions_are_refused_or_run() -> None:
    """Each byte of a definition changed: the worker answers and goes on."""
    with session() as client:
        _stream(client)
        memory = _memory(client)
        client.post("rgpuEventCreate", event=EVENT, flags=0)
        whole = chain(
            fill(memory, 5, 4), copy(memory + 64, memory, 16), child([EMPTY, EMPTY]), record(EVENT)
        )
        generator = random.Random(3)
        for at in range(len(whole)):
            damaged = bytearray(whole)
            damaged[at] ^= generator.randrange(1, 256)
            if instantiate(client, EXEC + at, bytes(damaged)) == 0:
                client.post("rgpuGraphExecDestroy", exec=EXEC + at)
        for size in range(0, len(whole), 7):
            status = instantiate(client, EXEC + size, whole[:size])
            assert status in (INVALID_VALUE, INVALID_IMAGE, INVALID_HANDLE), size
        client.result("rgpuContextSynchronize", ctx=10)
        _alive(client)


def test_a_body_that_waits_for_the_client_is_not_supported() -> None:
    with session() as client:
        values = {"graph": 500, "default_value": 1, "flags": 1}
        handle = int(client.call("rgpuGraphConditional", **values)["handle"])  # type: ignore[arg-type]
        bad = chain(conditional(handle, [[HOST]]))
        assert instantiate(client, EXEC, bad, 500) == NOT_SUPPORTED
        _alive(client)


def test_nodes_have_a_limit_per_session() -> None:
    with session() as client:
        many = MAGIC + graph([EMPTY] * 65_536)
        results = [instantiate(client, EXEC + i, many) for i in range(9)]
        assert results == [0] * 8 + [OUT_OF_MEMORY]
        client.post("rgpuGraphExecDestroy", exec=EXEC)
        client.result("rgpuContextSynchronize", ctx=10)
        _alive(client)


def test_a_definition_in_pieces_must_be_whole() -> None:
    with session() as client:
        client.post("rgpuImagePut", image=9, offset=0, total=100, bulk=MAGIC)
        answer = client.result("rgpuGraphInstantiate", exec=EXEC, image=9, graph=0, flags=0)
        assert answer.status == INVALID_IMAGE


def test_an_executable_that_is_gone_cannot_be_used() -> None:
    with session() as client:
        _stream(client)
        assert instantiate(client, EXEC, chain(EMPTY)) == 0
        _launch(client)
        client.post("rgpuGraphExecDestroy", exec=EXEC)
        _launch(client)
        assert _synchronized(client) == INVALID_HANDLE
        change = {"exec": EXEC, "node": 0, "parameters": node(EMPTY)}
        assert client.result("rgpuGraphSetNode", **change).status == INVALID_HANDLE  # type: ignore[arg-type]
        for name in ("rgpuGraphExecDestroy", "rgpuGraphUpload", "rgpuGraphEnableNode"):
            extra = {
                "rgpuGraphUpload": {"stream": STREAM},
                "rgpuGraphEnableNode": {"node": 0, "enabled": 1},
            }
            client.post(name, exec=EXEC, **extra.get(name, {}))  # type: ignore[arg-type]
            assert _synchronized(client) == INVALID_HANDLE
        _alive(client)


def test_changes_are_checked_like_definitions() -> None:
    with session() as client:
        _stream(client)
        memory = _memory(client)
        nodes = (fill(memory, 5, 4), copy(memory, 0, 16), HOST)
        assert instantiate(client, EXEC, chain(*nodes)) == 0
        for number, bad, want in (
            (0, fill(0x1000, 5, 4), INVALID_VALUE),
            (0, copy(memory, memory + 64, 16), INVALID_VALUE),  # of another kind
            (1, copy(memory, memory + 64, 16), INVALID_VALUE),  # no host side
            (1, copy(memory, 0, 32), NOT_SUPPORTED),  # another length
            (2, HOST, NOT_SUPPORTED),
            (3, EMPTY, INVALID_VALUE),
            (0xFFFFFFFF, EMPTY, INVALID_VALUE),
            (0, (Kind.CHILD, graph([])), INVALID_VALUE),
        ):
            change = {"exec": EXEC, "node": number, "parameters": node(bad)}
            assert client.result("rgpuGraphSetNode", **change).status == want, number  # type: ignore[arg-type]
        put(client, 9, chain(fill(memory, 6, 4), HOST, copy(memory, 0, 16)))
        assert client.result("rgpuGraphUpdate", exec=EXEC, image=9).status == INVALID_VALUE
        put(client, 9, chain(fill(memory, 6, 4), copy(memory, 0, 32), HOST))
        assert client.result("rgpuGraphUpdate", exec=EXEC, image=9).status == 0
        _alive(client)


def test_a_graph_outlives_the_events_that_it_names() -> None:
    with session() as client:
        _stream(client)
        client.post("rgpuEventCreate", event=EVENT, flags=0)
        assert instantiate(client, EXEC, chain(record(EVENT), wait(EVENT))) == 0
        client.post("rgpuEventDestroy", event=EVENT)
        for _ in range(3):
            _launch(client)
        assert _synchronized(client) == 0


def test_a_context_takes_its_graphs_with_it() -> None:
    with session() as client:
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.context = 11
        _stream(client)
        memory = _memory(client)
        assert instantiate(client, EXEC, chain(fill(memory, 1, 4))) == 0
        for _ in range(10):
            _launch(client)
        client.call("rgpuContextDestroy", ctx=11)
        client.context = 10
        client.post("rgpuGraphLaunch", exec=EXEC, stream=LEGACY, delivers=0)
        assert client.result("rgpuStreamSynchronize", stream=LEGACY).status == INVALID_HANDLE
        _alive(client)


def test_a_client_that_dies_in_a_graph_leaves_nothing() -> None:
    """The session context waits for the worker's end."""
    with session() as client:
        _stream(client)
        memory = _memory(client)
        assert instantiate(client, EXEC, chain(HOST, copy(memory, 0, BYTES), HOST)) == 0
        _launch(client, 1)
        client.notice(Notice.GRAPH_CALLBACK)


@pytest.mark.parametrize("wrong", ["offset", "bytes", "twice"])
def test_wrong_host_bytes_end_the_session(wrong: str) -> None:
    with session() as client:
        _stream(client)
        memory = _memory(client)
        assert instantiate(client, EXEC, chain(copy(memory, 0, BYTES), HOST)) == 0
        _launch(client, 1)
        fields, _ = client.notice(Notice.PULL)
        size = BYTES - (wrong == "bytes")
        values = {"pull": fields["pull"], "offset": 8 if wrong == "offset" else 0}
        frame = encode_message(Control.PULL_DATA, values, bulk=bytes(size))
        client.control.send(frame * (2 if wrong == "twice" else 1))
        assert len(client.sticky()) > 20
        client.ended()
