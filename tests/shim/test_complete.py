"""A hostile server against memory and host functions of a program: a host function of a graph runs
once for each launch, every byte moves once, and nothing moves after a wait has returned.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import clients

from rgpu_common.wire.codec import Value, encode_piece
from rgpu_common.wire.frame import Frame, Kind
from rgpu_common.wire.messages import Notice, encode_message
from shim.fake_server import Answer, FakeServer, reply

OUTSIDE = 0x3_0200_0000
NO_NODE = 0xFFFFFFFF
START = """
import ctypes, os, threading
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
cuda.open()
FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))

def made(call, *rest):
    handle = c_void_p()
    cuda(call, byref(handle), *rest)
    return handle

class Copy(ctypes.Structure):
    _side = [("x", c_size_t), ("y", c_size_t), ("z", c_size_t), ("lod", c_size_t), ("type", c_int),
             ("host", c_void_p), ("device", c_uint64), ("array", c_void_p), ("reserved", c_void_p),
             ("pitch", c_size_t), ("height", c_size_t)]
    _fields_ = ([("from_" + n, t) for n, t in _side] + [("to_" + n, t) for n, t in _side] +
                [("width", c_size_t), ("rows", c_size_t), ("depth", c_size_t)])

def launch(add, params, *rest):
    graph = made("cuGraphCreate", 0)
    made(add, graph, None, c_size_t(0), byref(params), *rest)
    cuda("cuGraphLaunch", made("cuGraphInstantiateWithFlags", graph, c_uint64(0)), stream)

def out():
    launch("cuGraphAddMemcpyNode", Copy(width=64, rows=1, depth=1, from_type=2, from_device=place,
           to_type=1, to_host=memory.value), context)

def back():
    launch("cuGraphAddMemcpyNode", Copy(width=64, rows=1, depth=1, from_type=1,
           from_host=memory.value, to_type=2, to_device=place), context)

stream = made("cuStreamCreate", 1)
event = made("cuEventCreate", 0)
place = cuda.alloc(4096)
memory = made("cuMemHostAlloc", c_size_t(4096), 0)
view = (ctypes.c_char * 4096).from_address(memory.value)
"""
# How a program learns that its copy is complete.
WAITS = {
    "stream": 'cuda("cuStreamSynchronize", stream)',
    "context": 'cuda("cuCtxSynchronize")',
    "context without the stream": 'cuda("cuStreamDestroy_v2", stream); cuda("cuCtxSynchronize")',
    "query": 'cuda("cuStreamQuery", stream)',
    "event": 'cuda("cuEventRecord", event, stream); cuda("cuEventSynchronize", event)',
    "event query": 'cuda("cuEventRecord", event, stream); cuda("cuEventQuery", event)',
}
COPIES = {
    "copy": 'cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(place), c_size_t(64), stream)',
    "graph": "out()",
}


def _plain(name: str, frame: Frame) -> Iterator[Answer]:
    if name == "rgpuMemAlloc":
        yield reply(frame, name, dptr=OUTSIDE)
    elif name == "rgpuGraphInstantiate":
        yield reply(frame, name, node=NO_NODE)
    elif frame.header.flags & 1:
        yield reply(frame, name)


def _bytes(frame: Frame, name: str, offset: int, data: bytes, *, last: bool = False) -> bytes:
    return encode_piece(Kind.DELIVERY, name, offset, data, seq=frame.header.seq, last=last)


def _run(server: FakeServer, source: str) -> tuple[str, str]:
    code, output, errors = clients.run(server.address, START + source)
    assert code == 0, errors
    return output, errors


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("copy", COPIES)
def test_no_byte_lands_after_a_wait_has_returned(copy: str, wait: str) -> None:
    posted: list[tuple[str, Frame]] = []

    def script(name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name in ("rgpuCopyDtoHLater", "rgpuGraphLaunch"):
            posted.append((name, frame))
            yield _bytes(frame, name, 0, b"x" * 32)
        elif name == "rgpuMemGetInfo":
            command, late = posted.pop()
            yield _bytes(late, command, 32, b"late" * 8)
            yield reply(frame, name, free=1, total=2)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        source = f"""
{COPIES[copy]}
{WAITS[wait]}
view[:4] = b"mine"
print(cuda.result("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t())), view[32:36])
"""
        output, errors = _run(server, source)
    assert output == "911 b'\\x00\\x00\\x00\\x00'\n"
    assert "after it had said that it was complete" in errors


@pytest.mark.parametrize("what", ["pull", "host function"])
def test_nothing_is_asked_for_after_a_wait_has_returned(what: str) -> None:
    posted: list[Frame] = []

    def script(name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name in ("rgpuHostFunction", "rgpuGraphLaunch"):
            posted.append(frame)
        elif name == "rgpuMemGetInfo":
            seq = posted.pop().header.seq
            if what == "pull":
                yield encode_message(Notice.PULL, {"pull": 1, "offset": 0, "bytes": 64}, seq=seq)
            else:
                yield encode_message(Notice.CALLBACK, {"callback": 1}, seq=seq)
            yield reply(frame, name, free=1, total=2)
        else:
            yield from _plain(name, frame)

    source = """
called = threading.Event()
function = FUNCTION(lambda data: called.set())
"""
    source += "back()" if what == "pull" else 'cuda("cuLaunchHostFunc", stream, function, None)'
    with FakeServer(script, with_band=False) as server:
        output, errors = _run(
            server,
            source
            + """
cuda("cuStreamSynchronize", stream)
print(cuda.result("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t())), called.is_set())
""",
        )
    assert output == "911 False\n"
    assert "after it had said that it was complete" in errors


def test_a_host_function_of_a_graph_runs_once_for_each_launch() -> None:
    """The functions that were due when the session ended have run when the next one has."""

    def script(name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuGraphLaunch":
            for number in range(1, 6):
                called = {"callback": number, "node": 0}
                yield encode_message(Notice.GRAPH_CALLBACK, called, seq=frame.header.seq)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        output, errors = _run(
            server,
            """
class Host(ctypes.Structure):
    _fields_ = [("function", FUNCTION), ("data", c_void_p)]
seen, over = [], threading.Event()
function = FUNCTION(seen.append)
end = FUNCTION(lambda data: over.set())
launch("cuGraphAddHostNode", Host(function, 7))
print(cuda.result("cuStreamSynchronize", stream))
held = made("cuUserObjectCreate", c_void_p(1), end, 1, 1)
cuda.result("cuUserObjectRelease", held, 1)
print(over.wait(60), seen)
""",
        )
    assert output == "911\nTrue [7]\n"
    assert "called it twice in one launch" in errors


@pytest.mark.parametrize(
    ("copy", "sent", "said"),
    [
        ("graph", [(0, 64), (0, 64)], "sent bytes of a copy twice"),
        ("graph", [(0, 32), (0, 32)], "sent bytes of a copy twice"),
        ("graph", [(32, 32)], "sent bytes of a copy twice"),
        ("copy", [(0, 64), (0, 64)], "sent bytes of a copy twice"),
    ],
)
def test_every_byte_of_a_copy_lands_once(copy: str, sent: list[tuple[int, int]], said: str) -> None:
    def script(name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name in ("rgpuCopyDtoHLater", "rgpuGraphLaunch"):
            for turn, (offset, size) in enumerate(sent):
                yield _bytes(frame, name, offset, bytes([turn + 1]) * size)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        source = f'{COPIES[copy]}\nprint(cuda.result("cuCtxSynchronize"), 2 in view.raw)'
        output, errors = _run(server, source)
    assert output == "911 False\n"
    assert said in errors


def test_every_byte_of_a_graph_is_asked_for_once() -> None:
    def script(name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuGraphLaunch":
            for number in (1, 2):
                asked = {"pull": number, "offset": 0, "bytes": 64}
                yield encode_message(Notice.PULL, asked, seq=frame.header.seq)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        output, errors = _run(server, 'back()\nprint(cuda.result("cuCtxSynchronize"))')
    assert output == "911\n"
    assert "asked for bytes of a graph's copy twice" in errors


def test_a_wait_for_another_stream_ends_nothing() -> None:
    posted: list[tuple[str, Frame]] = []

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name in ("rgpuCopyDtoHLater", "rgpuGraphLaunch"):
            posted.append((name, frame))
        elif name == "rgpuMemGetInfo":
            while posted:
                command, late = posted.pop()
                yield _bytes(late, command, 0, b"x" * 64)
                yield _bytes(late, command, 0, b"", last=True)
            yield reply(frame, name, free=1, total=2)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        output, _ = _run(
            server,
            f"""
other = made("cuStreamCreate", 1)
{COPIES["graph"]}
cuda("cuMemsetD8Async", c_uint64(place), 1, c_size_t(64), other)
cuda("cuStreamSynchronize", other)
cuda("cuEventRecord", event, other)
cuda("cuEventSynchronize", event)
cuda("cuStreamDestroy_v2", stream)
cuda("cuStreamSynchronize", other)
cuda.memory()
print(view[:2], cuda.result("cuCtxSynchronize"))
""",
        )
    assert output == "b'xx' 0\n"


def test_a_copy_that_failed_may_be_announced_late() -> None:
    """Its last frame has no bytes."""
    posted: list[Frame] = []

    def script(name: str, _: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuCopyDtoHLater":
            posted.append(frame)
        elif name == "rgpuMemGetInfo":
            yield _bytes(posted.pop(), "rgpuCopyDtoHLater", 0, b"", last=True)
            yield reply(frame, name, free=1, total=2)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        source = f"""
{COPIES["copy"]}
cuda("cuStreamSynchronize", stream)
cuda.memory()
print(cuda.result("cuMemFreeHost", memory))
"""
        assert _run(server, source)[0] == "0\n"


def test_no_byte_lands_after_a_notice_of_completion_was_used() -> None:
    posted: list[Frame] = []
    asked: list[dict[str, Value]] = []

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuCopyDtoHLater":
            posted.append(frame)
        elif name == "rgpuEventQuery":
            asked.append(values)
            yield reply(frame, name, status=600)
        elif name == "rgpuMemGetInfo":
            if asked:
                event = asked.pop()
                told = {"object": event["event"], "version": event["version"], "time_ns": 0}
                yield encode_message(Notice.COMPLETED, told)
                yield reply(frame, name, free=1, total=2)
            else:
                # In one piece: the client believes nothing that comes after the wrong frame.
                late = _bytes(posted.pop(), "rgpuCopyDtoHLater", 0, b"late" * 16)
                yield late + reply(frame, name, free=1, total=2)
        else:
            yield from _plain(name, frame)

    with FakeServer(script, with_band=False) as server:
        source = f"""
{COPIES["copy"]}
cuda("cuEventRecord", event, stream)
print(cuda.result("cuEventQuery", event))
cuda.memory()  # reads the notice
print(cuda.result("cuEventQuery", event))
print(cuda.result("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t())), view[:1])
"""
        assert _run(server, source)[0] == "600\n0\n911 b'\\x00'\n"
