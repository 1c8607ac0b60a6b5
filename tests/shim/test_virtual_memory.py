"""Virtual memory management over every transport: what a program sees, and what a worker counts."""

from __future__ import annotations

from helpers import clients

START = """
import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from helpers.maps import GRANULE, Maps
cuda.open()
maps = Maps(cuda)

def fails(result, call, *arguments):
    try:
        call(*arguments)
    except CudaError as error:
        assert error.result == result, (result, error)
    else:
        raise AssertionError(f"{call} did not fail")

def attribute(kind, number, place):
    value = kind()
    cuda("cuPointerGetAttribute", byref(value), number, c_uint64(place))
    return value.value
"""
KERNEL = r'''
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry put(.param .u64 p, .param .u64 value)
{
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [p];
  ld.param.u64 %rd2, [value];
  st.global.u64 [%rd1], %rd2;
  ret;
}
"""
put = cuda.function(cuda.load(PTX), "put")
'''


def check(server: str, source: str) -> None:
    code, output, errors = clients.run(server, START + source + "\nprint('ok')\n")
    assert (code, output) == (0, "ok\n"), errors


def test_one_memory_at_two_addresses(server: str) -> None:
    check(
        server,
        KERNEL
        + """
import os
size = 4 * GRANULE
first, handle = maps.mapped(size)
second = maps.reserve(size)
maps.map(second, size, handle)
maps.allow(second, size)
data = os.urandom(size)
cuda.upload(first, data)
assert cuda.download(second, size) == data
cuda.upload(second + 3, data[:5000])
assert cuda.download(first, 5003) == data[:3] + data[:5000]
cuda.launch(put, 1, 1, second + 64, 77)
assert cuda.download(first + 64, 8) == (77).to_bytes(8, "little")
assert attribute(c_uint64, 20, first) == attribute(c_uint64, 20, second)
assert attribute(c_uint64, 7, first) != attribute(c_uint64, 7, second)
assert (attribute(c_uint, 2, first), attribute(c_uint64, 1, first)) == (2, 0)
""",
    )


def test_memory_is_charged_until_its_last_use(server: str) -> None:
    check(
        server,
        """
free, total = cuda.memory()
place = maps.reserve(8 << 30)
assert cuda.memory() == (free, total)
size = 64 << 20
handle = maps.create(size)
assert cuda.memory() == (free - size, total)
maps.map(place, size, handle)
maps.allow(place, size)
cuda("cuMemsetD8_v2", c_uint64(place), 1, c_size_t(size))
maps.release(handle)
assert cuda.memory()[0] == free - size
again = maps.retain(place + 5)
assert again == handle
maps.unmap(place, size)
assert cuda.memory()[0] == free - size
maps.release(again)
cuda("cuCtxSynchronize")
block = maps.create(free // GRANULE * GRANULE)
maps.release(block)
assert cuda.memory() == (free, total)
maps.unreserve(place, 8 << 30)
fails(2, maps.create, total + GRANULE)
""",
    )


def test_a_growing_range_is_one_piece_of_memory(server: str) -> None:
    """As programs use it that grow an allocation in place."""
    check(
        server,
        """
place = maps.reserve(64 * GRANULE)
for part in range(8):
    at = place + part * GRANULE
    maps.map(at, GRANULE, maps.create(GRANULE))
    maps.allow(at, GRANULE)
whole = bytes(range(256)) * (8 * GRANULE // 256)
cuda.upload(place, whole)
assert cuda.download(place, len(whole)) == whole
cuda("cuMemcpyDtoD_v2", c_uint64(place), c_uint64(place + 4 * GRANULE - 1), c_size_t(4 * GRANULE))
assert cuda.download(place, 1) == whole[4 * GRANULE - 1 :][:1]
fails(1, cuda.download, place + 8 * GRANULE - 4, 8)
maps.unmap(place + 2 * GRANULE, 2 * GRANULE)
fails(1, cuda.download, place + GRANULE, 2 * GRANULE)
again = maps.create(2 * GRANULE)
maps.map(place + 2 * GRANULE, 2 * GRANULE, again)
fails(1, cuda.download, place + GRANULE, 2 * GRANULE)
maps.allow(place, 8 * GRANULE)
assert cuda.download(place + 2 * GRANULE, 2 * GRANULE) == bytes(2 * GRANULE)
maps.unmap(place, 8 * GRANULE)
maps.unreserve(place, 64 * GRANULE)
""",
    )


def test_without_access_a_kernel_makes_an_illegal_access(server: str) -> None:
    check(
        server,
        KERNEL
        + """
handle, place = maps.create(GRANULE), maps.reserve(GRANULE)
maps.map(place, GRANULE, handle)
assert maps.access(place) == 0
fails(1, cuda.download, place, 4)
assert attribute(c_uint, 16, place) == 0
maps.allow(place, GRANULE)
assert (maps.access(place), attribute(c_uint, 16, place)) == (3, 3)
cuda.launch(put, 1, 1, place, 5)
cuda("cuCtxSynchronize")
maps.allow(place, GRANULE, 0)
fails(1, cuda.download, place, 4)
cuda.launch(put, 1, 1, place, 5)
fails(700, cuda, "cuCtxSynchronize")
""",
    )


def test_addresses_are_mapped_again_after_pending_work(server: str) -> None:
    """An unmap takes effect behind the work that was issued before it."""
    check(
        server,
        """
place, handle = maps.mapped(GRANULE)
other = cuda.alloc(GRANULE)
for round in range(20):
    cuda("cuMemsetD8_v2", c_uint64(place), round, c_size_t(GRANULE))
    cuda("cuMemcpyDtoD_v2", c_uint64(other), c_uint64(place), c_size_t(GRANULE))
    maps.unmap(place, GRANULE)
    maps.release(handle)
    handle = maps.create(GRANULE)
    maps.map(place, GRANULE, handle)
    maps.allow(place, GRANULE)
    assert cuda.download(other, GRANULE) == bytes([round]) * GRANULE
    assert cuda.download(place, 64) == bytes(64)
""",
    )


def test_questions_about_memory_and_addresses(server: str) -> None:
    check(
        server,
        """
assert maps.granularity(0) == maps.granularity(1) == GRANULE
place, handle = maps.mapped(2 * GRANULE)
prop = maps.props_of(handle)
assert (prop.type, prop.handles, prop.location.type, prop.location.id) == (1, 0, 1, 0)
base, size = c_uint64(), c_size_t()
cuda("cuMemGetAddressRange_v2", byref(base), byref(size), c_uint64(place + GRANULE))
assert (base.value, size.value) == (place, 2 * GRANULE)
spare = maps.reserve(4 * GRANULE, 16 * GRANULE)
assert spare % (16 * GRANULE) == 0
maps.unreserve(spare, 4 * GRANULE)
assert maps.reserve(GRANULE, 0, spare) == spare, "a hint is honoured where it is free"
assert maps.reserve(GRANULE, 0, spare) != spare
assert maps.reserve(GRANULE, 0, 0x7000_0000_0000) != 0
""",
    )


def test_what_is_refused(server: str) -> None:
    check(
        server,
        """
value = c_int()
for number, expected in ((102, 1), (103, 1), (104, 0), (105, 0), (128, 0), (141, 0), (145, 0)):
    cuda("cuDeviceGetAttribute", byref(value), number, 0)
    assert value.value == expected, number
fails(801, lambda: maps.create(GRANULE, handles=2))
fails(801, lambda: maps.create(GRANULE, handles=3))
fails(801, lambda: maps.create(GRANULE, handles=8))
fails(801, lambda: maps.create(GRANULE, rdma=1))
fails(1, maps.create, GRANULE + 4096)
place, handle = maps.mapped(2 * GRANULE)
fails(1, maps.unmap, place, GRANULE)
fails(1, maps.unreserve, place, 2 * GRANULE)
fails(1, maps.allow, place, GRANULE)
fails(1, maps.map, place, GRANULE, handle)
fails(1, cuda.free, place)
fails(1, maps.release, handle + 1)
fails(1, maps.retain, cuda.alloc(64))
fails(1, maps.reserve, 4095)
fails(1, maps.reserve, GRANULE, 3)
maps.release(handle)
fails(1, maps.release, handle)
fails(1, maps.map, maps.reserve(GRANULE), GRANULE, handle)
""",
    )


def test_a_mapping_outlives_the_context_in_which_it_was_made(server: str) -> None:
    check(
        server,
        """
mine, other = c_void_p(), c_void_p()
cuda("cuCtxGetCurrent", byref(mine))
cuda("cuCtxCreate_v2", byref(other), 0, 0)
place, handle = maps.mapped(GRANULE)
cuda.upload(place, b"stays")
cuda("cuCtxDestroy_v2", other)
cuda("cuCtxSetCurrent", mine)
assert cuda.download(place, 5) == b"stays"
""",
    )
