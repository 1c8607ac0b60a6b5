"""The shim's handling of a server's messages: addresses, missing commands, late bytes, credits, and
garbage.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from helpers import clients

from rgpu_common.wire.codec import Value, encode_piece
from rgpu_common.wire.frame import Frame, Kind, encode_frame
from rgpu_common.wire.messages import Notice, encode_message
from shim.fake_memory import OUTSIDE, Memory
from shim.fake_server import Answer, FakeServer, reply

START = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
stream = c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
memory = c_void_p()
cuda("cuMemHostAlloc", byref(memory), c_size_t(4096), 0)
view = (ctypes.c_char * 4096).from_address(memory.value)
"""


def run(server: FakeServer, source: str) -> str:
    code, output, errors = clients.run(server.address, START + source)
    assert code == 0, errors
    return output


def test_a_server_without_a_band_gives_addresses_as_it_likes() -> None:
    with FakeServer(Memory(OUTSIDE), with_band=False) as server:
        output = run(
            server,
            """
place = cuda.alloc(4096)
text, back = ctypes.create_string_buffer(b"hello", 16), ctypes.create_string_buffer(16)
cuda("cuMemcpy", c_uint64(place + 8), c_uint64(ctypes.addressof(text)), c_size_t(16))
cuda("cuMemcpy", c_uint64(ctypes.addressof(back)), c_uint64(place + 8), c_size_t(16))
print(hex(place), back.value)
libc = ctypes.CDLL(None)
libc.mmap.restype = c_void_p
libc.mmap.argtypes = [c_void_p, c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
there = libc.mmap(place & ~4095, 4096, 3, 0x22, -1, 0)
print(there != place & ~4095)  # no host memory gets the same number
""",
        )
    assert output == f"{OUTSIDE:#x} b'hello'\nTrue\n"


def test_an_address_outside_the_band_ends_the_session() -> None:
    with FakeServer(Memory(OUTSIDE)) as server:
        output = run(
            server,
            """
print(cuda.result("cuMemAlloc_v2", byref(c_uint64()), c_size_t(4096)))
print(cuda.result("cuCtxSynchronize"))
""",
        )
    assert output == "911\n911\n"


def test_an_allocation_that_ends_outside_the_band_ends_the_session() -> None:
    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        return Memory(server.band.base + server.band.size - 2048)(name, values, frame)

    with FakeServer(script) as server:
        output = run(
            server, 'print(cuda.result("cuMemAlloc_v2", byref(c_uint64()), c_size_t(4096)))'
        )
    assert output == "911\n"


def test_addresses_of_a_context_may_come_back_before_its_destruction_is_told() -> None:
    destroying: list[bytes] = []

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuContextDestroy":
            destroying.append(reply(frame, name))
        elif name == "rgpuMemGetInfo":
            yield reply(frame, name, free=len(destroying), total=1)
        else:
            yield from Memory(OUTSIDE)(name, values, frame)
            if name == "rgpuMemAlloc":
                yield from destroying

    with FakeServer(script, with_band=False) as server:
        output = run(
            server,
            """
import threading
mine, other = c_void_p(), c_void_p()
cuda("cuCtxGetCurrent", byref(mine))
cuda("cuCtxCreate_v2", byref(other), 0, 0)
print(hex(cuda.alloc(4096)))
cuda("cuCtxSetCurrent", mine)
thread = threading.Thread(target=cuda, args=("cuCtxDestroy_v2", other))
thread.start()
while cuda.memory()[0] == 0:  # until the server knows
    pass
print(hex(cuda.alloc(4096)))
thread.join()
""",
        )
    assert output == f"{OUTSIDE:#x}\n{OUTSIDE:#x}\n"


def test_what_the_server_lacks_is_not_found() -> None:
    with FakeServer(Memory(OUTSIDE), missing=(0x0304,)) as server:
        output = run(
            server,
            """
found = c_void_p()
for name in (b"cuMemGetInfo", b"cuMemAlloc"):
    cuda("cuGetProcAddress_v2", name, byref(found), 12000, c_uint64(0), None)
    print(found.value is not None)
print(cuda.result("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t())))
version = ctypes.c_int()
cuda("cuDriverGetVersion", byref(version))
print(version.value)
""",
        )
    assert output == "False\nTrue\n801\n12040\n"


def test_allocations_do_without_credit_where_the_server_lacks_it() -> None:
    with FakeServer(Memory(OUTSIDE), with_band=False, missing=(0x0360, 0x0361)) as server:
        output = run(
            server,
            """
print(cuda.result("cuGetProcAddress_v2", b"cuMemAlloc", byref(c_void_p()), 12000, c_uint64(0), None))
for _ in range(5):
    cuda.free(cuda.alloc(4096))
""",
        )
    assert output == "0\n"
    assert server.received.count("rgpuMemAlloc") == 5


@pytest.mark.parametrize("order", ["bytes first", "reply first"])
def test_a_wait_is_over_only_when_the_bytes_are_there(order: str) -> None:
    later: list[Frame] = []

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuCopyDtoHLater":
            later.append(frame)
        elif name == "rgpuStreamSynchronize":
            seq = later.pop().header.seq
            answers = [
                encode_piece(Kind.DELIVERY, "rgpuCopyDtoHLater", 0, b"x" * 64, seq=seq, last=True),
                reply(frame, name, watermark=1),
            ]
            yield from answers if order == "bytes first" else reversed(answers)
        else:
            yield from Memory(0)(name, values, frame)

    def allocating(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuMemAlloc":
            return iter((reply(frame, name, dptr=OUTSIDE),))
        return script(name, values, frame)

    with FakeServer(allocating, with_band=False) as server:
        output = run(
            server,
            """
place = cuda.alloc(4096)
for _ in range(1):
    cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(place), c_size_t(64), stream)
    cuda("cuStreamSynchronize", stream)
    print(view[:64] == b"x" * 64, view[64])
""",
        )
    assert output == "True b'\\x00'\n"


def test_memory_of_a_copy_that_failed_is_not_waited_for() -> None:
    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuMemAlloc":
            yield reply(frame, name, dptr=OUTSIDE)
        elif name == "rgpuCopyHtoDPull":
            yield encode_piece(Kind.DELIVERY, name, 0, b"", seq=frame.header.seq, last=True)
        elif frame.header.flags & 1:
            yield reply(frame, name, watermark=int(name == "rgpuStreamSynchronize"))

    with FakeServer(script, with_band=False) as server:
        output = run(
            server,
            """
place = cuda.alloc(4096)
cuda("cuStreamWaitValue32_v2", stream, c_uint64(place), 1, 1)
cuda("cuMemcpyHtoDAsync_v2", c_uint64(place), memory, c_size_t(64), stream)
cuda("cuStreamSynchronize", stream)
print(cuda.result("cuMemFreeHost", memory))
""",
        )
    assert (output, server.received.count("rgpuCopyHtoDPull")) == ("0\n", 1)


def test_no_more_than_the_credits_is_on_its_way() -> None:
    outstanding, most, done = 0, 0, 0
    four = threading.Event()

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        nonlocal outstanding, most, done
        if name == "rgpuMemset":
            outstanding += 1
            most = max(most, outstanding)
            if outstanding == 4:
                outstanding, done = 0, done + 4
                four.set()
                yield encode_message(
                    Notice.CREDIT, {"stream": int(str(values["stream"])), "completed": done}
                )
        elif name == "rgpuMemAlloc":
            yield reply(frame, name, dptr=OUTSIDE)
        elif frame.header.flags & 1:
            yield reply(frame, name)

    with FakeServer(script, with_band=False, credits=4) as server:
        run(
            server,
            """
place = cuda.alloc(4096)
for _ in range(40):
    cuda("cuMemsetD8Async", c_uint64(place), 1, c_size_t(64), stream)
cuda("cuStreamSynchronize", stream)
""",
        )
    assert (most, done) == (4, 40)


def test_a_fatal_error_ends_the_wait_for_credit() -> None:
    sent = 0

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        nonlocal sent
        sent += name == "rgpuMemset"
        if name == "rgpuMemAlloc":
            yield reply(frame, name, dptr=OUTSIDE)
        elif name == "rgpuMemset" and sent == 4:
            values = {"context": 0, "sentence": "a kernel went astray"}
            yield encode_message(Notice.STICKY, values, status=700)
        elif frame.header.flags & 1:
            yield reply(frame, name)

    with FakeServer(script, with_band=False, credits=4) as server:
        code, output, errors = clients.run(
            server.address,
            START
            + """
place = cuda.alloc(4096)
for _ in range(40):
    result = cuda.result("cuMemsetD8Async", c_uint64(place), 1, c_size_t(64), stream)
print(result, cuda.result("cuCtxSynchronize"))
""",
        )
    assert (code, output) == (0, "700 700\n"), errors
    assert sent == 4
    assert "a kernel went astray" in errors


def test_what_the_server_says_does_not_steer_the_terminal() -> None:
    """Text of a server, or of a stranger in its place, has no 7-bit or 8-bit escapes when it is
    printed, and nothing that reorders or hides.
    """

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuMemGetInfo":
            yield encode_message(Notice.LOG, {"level": 1, "text": "one\x1b]0;owned\x07 line"})
            said = {"context": 0, "sentence": "it\x1b[2J is\x9b2J \u00e9 \u202eover\x7f"}
            yield encode_message(Notice.STICKY, said, status=700)
            yield reply(frame, name, free=0, total=0)
        elif frame.header.flags & 1:
            yield reply(frame, name)

    with FakeServer(script, with_band=False) as server:
        free = 'print(cuda.result("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t())))'
        code, _, errors = clients.run(server.address, START + free)
    assert code == 0, errors
    assert "rgpu: one?]0;owned? line\n" in errors
    assert "rgpu: it?[2J is?2J \u00e9 ?over? (server" in errors


def nonsense(kind: str, frame: Frame) -> bytes:
    """A frame that no honest server sends."""
    seq = frame.header.seq
    return {
        "no frame": b"\xff" * 64,
        "unknown kind of frame": encode_frame(Kind.CONTROL, 1, seq=seq),
        "data nobody wants": encode_piece(Kind.DATA, "rgpuCopyDtoH", 0, b"x", seq=seq, last=False),
        "delivery nobody wants": encode_piece(
            Kind.DELIVERY, "rgpuCopyDtoHLater", 0, b"x", seq=seq, last=True
        ),
        "pull nobody wants": encode_message(
            Notice.PULL, {"pull": 1, "offset": 0, "bytes": 8}, seq=seq
        ),
        "reply that is too long": encode_frame(Kind.REPLY, 0x0304, bytes(17), seq=seq),
        "reply that is too short": encode_frame(Kind.REPLY, 0x0304, bytes(15), seq=seq),
        "notice that is too long": encode_frame(Kind.NOTICE, Notice.CREDIT, bytes(17)),
        "end": b"",
    }[kind]


@pytest.mark.parametrize(
    "kind",
    [
        "no frame",
        "unknown kind of frame",
        "data nobody wants",
        "delivery nobody wants",
        "pull nobody wants",
        "reply that is too long",
        "reply that is too short",
        "notice that is too long",
        "a copy past its end",
    ],
)
def test_nonsense_ends_the_session_and_nothing_else(kind: str) -> None:
    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuMemGetInfo":
            yield nonsense(kind, frame)
        elif name == "rgpuCopyDtoH":
            yield encode_piece(Kind.DATA, name, 60, b"12345678", seq=frame.header.seq, last=False)
        else:
            yield from Memory(OUTSIDE)(name, values, frame)

    with FakeServer(script, with_band=False) as server:
        code, output, errors = clients.run(
            server.address,
            START
            + """
place = cuda.alloc(4096)
back = ctypes.create_string_buffer(b"untouched", 4096)
past = %r
if past:
    print(cuda.result("cuMemcpyDtoH_v2", back, c_uint64(place), c_size_t(64)))
else:
    print(cuda.result("cuMemGetInfo_v2", byref(c_size_t()), byref(c_size_t())))
later = cuda.result("cuCtxSynchronize"), cuda.result("cuCtxGetCurrent", byref(stream))
print(*later, back.raw[64:65])
"""
            % (kind == "a copy past its end"),
        )
    assert (code, output) == (0, "911\n911 0 b'\\x00'\n"), errors
    assert errors.count("rgpu: ") == 1, errors
