"""The shim's handling of what a server says about managed memory."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from helpers import clients
from helpers.ends import plant

from rgpu_common.wire.codec import Value, encode_piece
from rgpu_common.wire.frame import Frame, Kind
from shim.fake_memory import OUTSIDE, Memory
from shim.fake_server import Answer, FakeServer, reply

MANAGED = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
address = c_uint64()
def managed(size):
    return cuda.result("cuMemAllocManaged", byref(address), c_size_t(size), 1)
"""


def _managed(server: FakeServer, source: str) -> tuple[int, str]:
    code, output, _ = clients.run(server.address, MANAGED + source)
    return code, output


def test_managed_memory_outside_the_band_ends_the_session() -> None:
    """Its pages are mapped at the server's addresses, over whatever lies there."""
    with FakeServer(Memory(OUTSIDE)) as server:
        assert _managed(server, "print(managed(4096), managed(64))") == (0, "911 911\n")


def test_managed_memory_over_another_allocation_ends_the_session() -> None:
    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        return Memory(server.band.base)(name, values, frame)

    source = """
print(managed(100))
ctypes.memset(address.value, 7, 100)
print(managed(100), ctypes.string_at(address.value, 2))
"""
    with FakeServer(script) as server:
        assert _managed(server, source) == (0, "0\n911 b'\\x07\\x07'\n")


def test_managed_memory_in_the_rest_of_a_page_ends_the_session() -> None:
    """A page of the program's would have two owners."""
    addresses = iter([0, 512, 0x10000])

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        base = server.band.base
        return Memory(base + next(addresses) if name == "rgpuMemAlloc" else 0)(name, values, frame)

    with FakeServer(script) as server:
        source = "print(managed(100), cuda.result('cuMemAlloc_v2', byref(c_uint64()), c_size_t(8)))"
        assert _managed(server, source + "\nprint(managed(64))") == (0, "0 0\n0\n")


def test_small_pieces_of_a_driver_give_whole_pages() -> None:
    """A driver without whole pages is asked for one more page, and the first piece is freed."""
    asked: list[int] = []
    addresses = iter([OUTSIDE + 512, OUTSIDE + 0x200, OUTSIDE + 0x20000])

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuMemAlloc":
            asked.append(int(str(values["bytes"])))
            yield reply(frame, name, dptr=next(addresses))
        elif frame.header.flags & 1:
            yield reply(frame, name)

    with FakeServer(script, with_band=False) as server:
        code, output = _managed(server, "print(managed(100), hex(address.value))")
    assert (code, output) == (0, f"0 {OUTSIDE + 0x1000:#x}\n")
    assert asked == [4096, 8192]
    assert server.received.count("rgpuMemFree") == 1


def test_managed_memory_where_the_host_has_memory_is_refused() -> None:
    """Without a band the driver chooses addresses; these may be in use in the client."""
    with FakeServer(Memory(OUTSIDE), with_band=False) as server:
        source = f"""
libc = ctypes.CDLL(None)
libc.mmap.restype = c_void_p
libc.mmap.argtypes = [c_void_p, c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
assert libc.mmap({OUTSIDE}, 4096, 3, 0x100022, -1, 0) == {OUTSIDE}
ctypes.memset({OUTSIDE}, 5, 4096)
print(managed(4096), ctypes.string_at({OUTSIDE}, 1))
"""
        assert _managed(server, source) == (0, "801 b'\\x05'\n")


def test_a_server_without_pages_has_no_managed_memory() -> None:
    with FakeServer(Memory(OUTSIDE), with_band=False, missing=(0x0450,)) as server:
        assert _managed(server, "print(managed(4096))") == (0, "801\n")


def test_a_page_of_too_few_bytes_ends_the_program() -> None:
    """The program asked for the bytes by a touch, which has no error to return."""

    def script(name: str, values: dict[str, Value], frame: Frame) -> Iterator[Answer]:
        if name == "rgpuCopyDtoH":
            piece = encode_piece(Kind.DATA, name, 0, b"short", seq=frame.header.seq, last=False)
            yield piece
            yield reply(frame, name)
        else:
            yield from Memory(OUTSIDE)(name, values, frame)

    source = """
print(managed(8192))
stream = c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
cuda("cuStreamWriteValue32_v2", stream, address, 1, 0)     # takes the pages away
print("touch", flush=True)
ctypes.string_at(address.value, 1)
"""
    with FakeServer(script, with_band=False) as server:
        plant(signal.SIGSEGV)
        assert _managed(server, source) == (-11, "0\ntouch\n")
