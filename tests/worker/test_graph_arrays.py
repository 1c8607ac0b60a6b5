"""Arrays in graphs at the worker: what a client that does not play by the rules can make of them."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rgpu_common.wire.messages import Control, Notice, encode_message
from worker.client import LEGACY, Client, session
from worker.graphs import (
    EMPTY,
    HOST_SIDE,
    Node,
    box,
    chain,
    conditional,
    in_array,
    instantiate,
    linear,
    node,
    put,
)
from worker.leased import MIB, held, leased

INVALID_VALUE, INVALID_CONTEXT, INVALID_HANDLE, NOT_SUPPORTED = 1, 201, 400, 801
U8, U32, NV12 = 1, 3, 0xB0
EXEC, STREAM, ARRAY, OTHER, PLANES, MIPMAP, LEVEL = 50, 70, 80, 81, 82, 83, 84
WIDTH, HEIGHT, DEPTH = 64, 20, 6
BYTES = WIDTH * HEIGHT * DEPTH
MOST = (1 << 64) - 1


def _array(client: Client, array: int, size: tuple[int, int, int], form: int = U8) -> None:
    width, height, depth = size
    fields = {"format": form, "channels": 1, "flags": 0}
    client.call("rgpuArrayCreate", array=array, width=width, height=height, depth=depth, **fields)


@contextmanager
def _ready() -> Iterator[tuple[Client, int]]:
    """A session with a stream, two arrays, and memory of as many bytes."""
    with session() as client:
        client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)
        for array in (ARRAY, OTHER):
            _array(client, array, (WIDTH, HEIGHT, DEPTH))
        yield client, int(client.call("rgpuMemAlloc", bytes=BYTES)["dptr"])  # type: ignore[arg-type]


def _whole(to: bytes, source: bytes) -> Node:
    return box(to, source, WIDTH, HEIGHT, DEPTH)


def _memory(address: int) -> bytes:
    return linear(address, WIDTH, HEIGHT)


def _launch(client: Client, delivers: int = 0) -> int:
    return client.post("rgpuGraphLaunch", exec=EXEC, stream=STREAM, delivers=delivers)


def _result(client: Client) -> int:
    _launch(client)
    return client.result("rgpuStreamSynchronize", stream=STREAM).status


def _change(client: Client, number: int, one: Node) -> int:
    change = {"exec": EXEC, "node": number, "parameters": node(one)}
    return client.result("rgpuGraphSetNode", **change).status  # type: ignore[arg-type]


def _alive(client: Client) -> None:
    assert client.call("rgpuPing", echo=7)["echo"] == 7


def test_bytes_go_through_arrays() -> None:
    with _ready() as (client, memory):
        back = int(client.call("rgpuMemAlloc", bytes=BYTES)["dptr"])  # type: ignore[arg-type]
        part = (8, 3, 2)  # from the corner at (4, 1, 1)
        corner = in_array(OTHER, 4, 1, 1)
        nodes = (
            _whole(in_array(ARRAY), _memory(memory)), _whole(in_array(OTHER), in_array(ARRAY)),
            box(linear(back, 16, 5), corner, *part),
        )  # fmt: skip
        assert instantiate(client, EXEC, chain(*nodes)) == 0
        for turn in range(2):
            data = random.Random(turn).randbytes(BYTES)
            client.upload(memory, data)
            assert _result(client) == 0
            for z in range(2):
                for y in range(3):
                    at = ((1 + z) * HEIGHT + 1 + y) * WIDTH + 4
                    row = client.download(back + (z * 5 + y) * 16, 8)
                    assert row == data[at : at + 8], (turn, z, y)


def test_host_sides_of_arrays_are_asked_for_and_delivered() -> None:
    size = (1000, 30, 40)  # five pieces of staging memory
    total = 1000 * 30 * 40
    with session() as client:
        client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)
        _array(client, ARRAY, size)
        nodes = (box(in_array(ARRAY), HOST_SIDE, *size), box(HOST_SIDE, in_array(ARRAY), *size))
        assert instantiate(client, EXEC, chain(*nodes)) == 0
        sent = random.Random(4).randbytes(total)
        launch = _launch(client, 1)
        waiting = client.post("rgpuStreamSynchronize", stream=STREAM)
        given = 0
        while given < total:
            fields, _ = client.notice(Notice.PULL)
            begin, count = int(fields["offset"]), int(fields["bytes"])
            values = {"pull": fields["pull"], "offset": begin}
            bulk = sent[begin : begin + count]
            client.control.send(encode_message(Control.PULL_DATA, values, bulk=bulk))
            given += count
        assert client.wait(waiting).status == 0
        assert bytes(client.deliveries[launch][total:]) == sent


REFUSED: dict[str, tuple[int, Node]] = {
    "an array that does not exist": (INVALID_HANDLE, box(in_array(99), in_array(ARRAY), 4)),
    "no array": (INVALID_HANDLE, box(in_array(0), in_array(ARRAY), 4)),
    "an object of another kind": (INVALID_HANDLE, box(in_array(STREAM), in_array(ARRAY), 4)),
    "an array of planes": (INVALID_VALUE, box(in_array(PLANES), in_array(ARRAY), 4)),
    "a row too long": (INVALID_VALUE, box(in_array(ARRAY), in_array(OTHER), WIDTH + 1)),
    "a row behind the end": (INVALID_VALUE, box(in_array(ARRAY, WIDTH), in_array(OTHER), 1)),
    "a column too high": (INVALID_VALUE, box(in_array(ARRAY, 0, 1), in_array(OTHER), 4, HEIGHT)),
    "too many slices": (INVALID_VALUE, box(in_array(ARRAY, z=6), in_array(OTHER), 4)),
    "an x that overflows": (INVALID_VALUE, box(in_array(ARRAY, MOST - 1), in_array(OTHER), 4)),
    "a y that overflows": (INVALID_VALUE, box(in_array(ARRAY, 0, MOST), in_array(OTHER), 4)),
    "a z that overflows": (INVALID_VALUE, box(in_array(ARRAY, z=MOST), in_array(OTHER), 4)),
    "no bytes": (INVALID_VALUE, box(in_array(ARRAY), in_array(OTHER), 0)),
    "no slices": (INVALID_VALUE, box(in_array(ARRAY), in_array(OTHER), 4, 1, 0)),
    "sizes that overflow": (
        INVALID_VALUE, box(in_array(ARRAY), HOST_SIDE, 1 << 32, 1 << 31, 1 << 31)
    ),
    "a half element": (INVALID_VALUE, box(in_array(LEVEL), in_array(ARRAY), 6)),
    "the middle of an element": (INVALID_VALUE, box(in_array(LEVEL, 2), in_array(ARRAY), 4)),
    "memory outside": (INVALID_VALUE, box(linear(0x1000, 4, 1), in_array(ARRAY), 4)),
    "host bytes too many": (INVALID_VALUE, box(in_array(ARRAY), HOST_SIDE, WIDTH, HEIGHT, 7)),
    "host bytes from nowhere": (INVALID_HANDLE, box(HOST_SIDE, in_array(99), WIDTH)),
    "host bytes for ever": (INVALID_VALUE, box(HOST_SIDE, in_array(ARRAY), 1, 1, 1 << 62)),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_an_array_does_not_hold_is_refused(what: str) -> None:
    status, bad = REFUSED[what]
    with _ready() as (client, _):
        _array(client, PLANES, (WIDTH, HEIGHT, 0), NV12)
        shape = {"width": 16, "height": 16, "depth": 0, "format": U32, "channels": 1, "flags": 0}
        client.call("rgpuMipmappedArrayCreate", mipmap=MIPMAP, levels=2, **shape)
        client.call("rgpuMipmapLevel", array=LEVEL, mipmap=MIPMAP, level=1)
        put(client, 9, chain(EMPTY, bad))
        answer = client.result("rgpuGraphInstantiate", exec=EXEC, image=9, graph=0, flags=0)
        assert (answer.status, answer.values["node"]) == (status, 1)
        good = _whole(in_array(ARRAY), in_array(OTHER))
        assert instantiate(client, EXEC, chain(good)) == 0
        assert _change(client, 0, bad) in (status, INVALID_VALUE)
        assert _result(client) == 0, "a refused change leaves the graph as it was"


@pytest.mark.parametrize("rows", [0, HEIGHT - 1, 1 << 60])
def test_slices_that_overlap_or_leave_the_memory_are_refused(rows: int) -> None:
    with _ready() as (client, memory):
        for bad in (
            _whole(in_array(ARRAY), linear(memory, WIDTH, rows)),
            _whole(linear(memory, WIDTH, rows), HOST_SIDE),
        ):
            assert instantiate(client, EXEC, chain(bad)) == INVALID_VALUE
        _alive(client)


def test_damaged_definitions_are_refused_or_run() -> None:
    """Each byte of a definition changed: the worker answers and goes on."""
    with _ready() as (client, memory):
        whole = chain(
            _whole(in_array(ARRAY), _memory(memory)), _whole(in_array(OTHER, 0, 0, 0), HOST_SIDE),
            box(linear(memory, 8, 4), in_array(OTHER, 1, 2, 3), 5, 4, 3),
        )  # fmt: skip
        generator = random.Random(5)
        ran = 0
        for at in range(len(whole)):
            damaged = bytearray(whole)
            damaged[at] ^= generator.randrange(1, 256)
            if instantiate(client, EXEC, bytes(damaged)) != 0:
                continue
            client.post("rgpuGraphEnableNode", exec=EXEC, node=1, enabled=0)
            _launch(client, 1)
            client.post("rgpuGraphExecDestroy", exec=EXEC)
            ran += 1
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        assert ran > 0
        _alive(client)


def test_a_graph_of_an_array_that_is_gone_is_not_launched() -> None:
    with _ready() as (client, memory):
        shape = {"width": 16, "height": 16, "depth": 0, "format": U8, "channels": 1, "flags": 0}
        client.call("rgpuMipmappedArrayCreate", mipmap=MIPMAP, levels=2, **shape)
        client.call("rgpuMipmapLevel", array=LEVEL, mipmap=MIPMAP, level=1)
        for copy, destroy in (
            (_whole(in_array(ARRAY), _memory(memory)), ("rgpuArrayDestroy", {"array": ARRAY})),
            (_whole(_memory(memory), in_array(OTHER)), ("rgpuArrayDestroy", {"array": OTHER})),
            (
                box(linear(memory), in_array(LEVEL), 8),
                ("rgpuMipmappedArrayDestroy", {"mipmap": MIPMAP}),
            ),
        ):
            assert instantiate(client, EXEC, chain(EMPTY, copy)) == 0
            assert _result(client) == 0
            client.post(destroy[0], **destroy[1])
            assert _result(client) == INVALID_HANDLE
            client.post("rgpuGraphUpload", exec=EXEC, stream=STREAM)
            assert client.result("rgpuStreamSynchronize", stream=STREAM).status == INVALID_HANDLE
            client.post("rgpuGraphExecDestroy", exec=EXEC)
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
        _alive(client)


def test_an_array_of_a_context_that_is_gone_is_not_used() -> None:
    with _ready() as (client, memory):
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.context = 11
        _array(client, LEVEL, (WIDTH, HEIGHT, DEPTH))
        client.context = 10
        assert instantiate(client, EXEC, chain(_whole(in_array(LEVEL), _memory(memory)))) == 0
        assert _result(client) == 0
        client.call("rgpuContextDestroy", ctx=11)
        assert _result(client) == INVALID_CONTEXT
        _alive(client)


def test_a_change_names_another_array() -> None:
    with _ready() as (client, memory):
        data = random.Random(6).randbytes(BYTES)
        client.upload(memory, data)
        assert instantiate(client, EXEC, chain(_whole(in_array(ARRAY), _memory(memory)))) == 0
        for bad in (_whole(in_array(99), _memory(memory)), _whole(in_array(ARRAY, 1), HOST_SIDE)):
            assert _change(client, 0, bad) in (INVALID_HANDLE, INVALID_VALUE)
        assert _change(client, 0, _whole(in_array(OTHER), _memory(memory))) == 0
        client.post("rgpuArrayDestroy", array=ARRAY)
        assert _result(client) == 0, "the graph no longer names the first array"
        rows = {"array": OTHER, "at": 0, "pitch": 0, "rows": 0, "x": 0, "y": 0, "z": 0}
        size = {"width": WIDTH, "height": HEIGHT, "depth": DEPTH}
        assert client.result("rgpuCopyBoxOut", stream=LEGACY, **rows, **size).data == data
        client.post("rgpuArrayDestroy", array=OTHER)
        assert _result(client) == INVALID_HANDLE


def test_a_change_of_a_host_copy_names_another_array() -> None:
    with _ready() as (client, memory):
        assert instantiate(client, EXEC, chain(_whole(HOST_SIDE, in_array(ARRAY)))) == 0
        for bad, status in (
            (_whole(HOST_SIDE, in_array(99)), INVALID_HANDLE),
            (_whole(HOST_SIDE, in_array(OTHER, 1)), INVALID_VALUE),
            (box(HOST_SIDE, in_array(OTHER), WIDTH), NOT_SUPPORTED),
            (_whole(HOST_SIDE, _memory(memory)), NOT_SUPPORTED),
            (_whole(in_array(OTHER), HOST_SIDE), NOT_SUPPORTED),
        ):
            assert _change(client, 0, bad) == status
        assert _change(client, 0, _whole(HOST_SIDE, in_array(OTHER))) == 0
        client.post("rgpuArrayDestroy", array=ARRAY)
        launch = _launch(client, 1)
        assert client.result("rgpuStreamSynchronize", stream=STREAM).status == 0
        assert len(client.deliveries[launch]) == BYTES
        client.post("rgpuArrayDestroy", array=OTHER)
        put(client, 9, chain(_whole(HOST_SIDE, in_array(OTHER))))
        assert client.result("rgpuGraphUpdate", exec=EXEC, image=9).status == INVALID_HANDLE
        _alive(client)


def test_an_update_names_another_array() -> None:
    with _ready() as (client, memory):
        assert instantiate(client, EXEC, chain(_whole(in_array(ARRAY), _memory(memory)))) == 0
        put(client, 9, chain(_whole(in_array(OTHER), _memory(memory))))
        assert client.result("rgpuGraphUpdate", exec=EXEC, image=9).status == 0
        client.post("rgpuArrayDestroy", array=ARRAY)
        assert _result(client) == 0
        client.post("rgpuArrayDestroy", array=OTHER)
        assert _result(client) == INVALID_HANDLE


def test_a_body_may_copy_arrays_within_the_device() -> None:
    with _ready() as (client, memory):
        data = random.Random(7).randbytes(BYTES)
        client.upload(memory, data)
        values = {"graph": 500, "default_value": 1, "flags": 1}
        handle = int(client.call("rgpuGraphConditional", **values)["handle"])  # type: ignore[arg-type]
        body = [_whole(in_array(ARRAY), _memory(memory))]
        assert instantiate(client, EXEC, chain(conditional(handle, [body])), 500) == 0
        assert _result(client) == 0
        client.post("rgpuArrayDestroy", array=ARRAY)
        assert _result(client) == INVALID_HANDLE


def test_a_destroyed_array_is_there_until_a_launch_in_another_context_is_over() -> None:
    with leased() as (client, page):
        flag = client.alloc(512)
        client.upload(flag, struct.pack("<I", 0))
        client.post("rgpuStreamCreate", stream=STREAM, flags=1, priority=0)
        _array(client, ARRAY, (1024, 1024, 0))
        assert instantiate(client, EXEC, chain(box(in_array(ARRAY), in_array(ARRAY), 4))) == 0
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.context = 11
        client.post("rgpuStreamCreate", stream=STREAM + 1, flags=1, priority=0)
        client.wait_value(STREAM + 1, flag, 1)
        client.post("rgpuGraphLaunch", exec=EXEC, stream=STREAM + 1, delivers=0)
        client.context = 10
        client.post("rgpuArrayDestroy", array=ARRAY)
        _alive(client)
        assert page.used() >= MIB
        client.write_value(STREAM, flag, 1)
        client.context = 11
        assert client.result("rgpuStreamSynchronize", stream=STREAM + 1).status == 0
        client.context = 10
        _array(client, OTHER, (8192, 8190, 0))  # waits until the memory is free
        assert held(client, page) == page.used()
