"""An error of a kernel stops the kernels beside it before the host gets the error."""

from __future__ import annotations

import ctypes
import os
import time

from emu.device import SECONDS, Device, expect, on_device, used
from emu.kernels import HEAD, U64, load

ILLEGAL_ADDRESS, ASSERT = 700, 710
# spin: adds one to the first word, then waits for the second.  wild: an illegal address.
# fail: an assertion.  odd: an assertion in every thread whose x is odd.  together: the same, before
# a barrier.  alone: an assertion in the threads whose x is 0, while all others wait for ever.
PTX = (
    HEAD
    + """
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
                           .param .b64 c) .noreturn;
.global .align 1 .b8 text[2] = {120, 0};
.visible .entry spin(.param .u64 p)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d;
  ld.param.u64 %d, [p];
  atom.global.add.u32 %r0, [%d], 1;
L:
  ld.volatile.global.u32 %r1, [%d+4];
  setp.eq.u32 %p, %r1, 0;
  @%p bra L;
  ret;
}
.visible .entry wild()
{
  .reg .b32 %r; .reg .b64 %d;
  mov.u64 %d, 16;
  mov.u32 %r, 1;
  st.global.u32 [%d], %r;
  ret;
}
.visible .entry fail()
{
  .reg .b64 %d;
  .param .b64 a0; .param .b64 a1; .param .b32 a2; .param .b64 a3; .param .b64 a4;
  mov.u64 %d, text;
  st.param.b64 [a0], %d; st.param.b64 [a1], %d; st.param.b32 [a2], 7;
  st.param.b64 [a3], %d; st.param.b64 [a4], 1;
  call.uni __assertfail, (a0, a1, a2, a3, a4);
  ret;
}
"""
    + "".join(
        f"""
.visible .entry {name}(.param .u64 p)
{{
  .reg .pred %p<2>; .reg .b32 %r<3>; .reg .b64 %d<2>;
  .param .b64 a0; .param .b64 a1; .param .b32 a2; .param .b64 a3; .param .b64 a4;
  ld.param.u64 %d1, [p];
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 1;
  setp.{which}.u32 %p0, %r{number}, 0;
  @%p0 bra GOOD;
  mov.u64 %d0, text;
  st.param.b64 [a0], %d0; st.param.b64 [a1], %d0; st.param.b32 [a2], 7;
  st.param.b64 [a3], %d0; st.param.b64 [a4], 1;
  call.uni __assertfail, (a0, a1, a2, a3, a4);
GOOD:
{rest}
  ret;
}}
"""
        for name, which, number, rest in (
            ("odd", "eq", 1, ""),
            ("together", "eq", 1, "bar.sync 0;"),
            (
                "alone",
                "ne",
                0,
                "L: ld.volatile.global.u32 %r2, [%d1+4];\nsetp.eq.u32 %p1, %r2, 0;\n@%p1 bra L;",
            ),
        )
    )
)


def words(cuda: Device) -> int:
    """Memory that kernels and the host share."""
    return cuda.pinned(8)


def word(address: int, number: int) -> ctypes.c_uint32:
    return ctypes.c_uint32.from_address(address + 4 * number)


def until(address: int, count: int) -> None:
    deadline = time.monotonic() + SECONDS / 2
    while word(address, 0).value < count:
        assert time.monotonic() < deadline
        time.sleep(0.001)


@on_device()
def test_an_error_stops_the_kernels_of_every_stream(cuda: Device) -> None:
    cuda.open()
    module = load(cuda, PTX)
    spin, wild, place = cuda.function(module, "spin"), cuda.function(module, "wild"), words(cuda)
    for _ in range(5):
        cuda.launch(spin, [U64(place)], grid=2, stream=cuda.stream(1))
    until(place, 5)
    cuda.launch(wild, [], stream=cuda.stream(1))
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuCtxSynchronize"))
    before, since = used(), time.monotonic()
    time.sleep(0.3)  # nothing is waited for: this is the time that is measured
    assert used() - before < (time.monotonic() - since) / 3


@on_device()
def test_a_failed_assertion_stops_its_own_context_alone(cuda: Device) -> None:
    cuda.open()
    other_module, place = load(cuda, PTX), words(cuda)
    beside, stream = cuda.function(other_module, "spin"), cuda.stream(1)
    cuda.launch(beside, [U64(place)], stream=stream)
    until(place, 1)
    failing = cuda.out("cuCtxCreate_v2", 0, 0)
    module, mine = load(cuda, PTX), words(cuda)
    cuda.launch(cuda.function(module, "spin"), [U64(mine)], stream=cuda.stream(1))
    until(mine, 1)
    cuda.launch(cuda.function(module, "fail"), [], stream=cuda.stream(1))
    expect(ASSERT, lambda: cuda("cuCtxSynchronize"))
    cuda("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_uint64()))
    cuda("cuCtxSetCurrent", cuda.out("cuDevicePrimaryCtxRetain", 0))
    expect(600, lambda: cuda("cuStreamQuery", stream))
    word(place, 1).value = 1
    cuda("cuStreamSynchronize", stream)
    cuda("cuCtxDestroy_v2", failing)


def lines_of(cuda: Device, name: str) -> list[str]:
    """Launches two blocks of 4 x 2 threads; returns the lines of assertions on stderr, sorted."""
    cuda.open()
    kernel, place = cuda.function(load(cuda, PTX), name), U64(words(cuda))
    arguments = (ctypes.c_void_p * 1)(ctypes.addressof(place))
    reader, writer = os.pipe()
    before = os.dup(2)
    os.dup2(writer, 2)
    cuda("cuLaunchKernel", kernel, 2, 1, 1, 4, 2, 1, 0, 0, arguments, None)
    result = cuda.result("cuCtxSynchronize")
    os.dup2(before, 2)
    assert result == ASSERT
    text = os.read(reader, 1 << 16).decode()
    return sorted(line for line in text.splitlines() if "Assertion" in line)


def line(block: int, x: int, y: int) -> str:
    return f"x:7: x: block: [{block},0,0], thread: [{x},{y},0] Assertion `x` failed."


@on_device()
def test_each_thread_whose_assertion_fails_has_a_line(cuda: Device) -> None:
    expected = [line(block, x, y) for block in (0, 1) for x in (1, 3) for y in (0, 1)]
    assert lines_of(cuda, "odd") == sorted(expected)


@on_device()
def test_each_thread_before_a_barrier_has_a_line(cuda: Device) -> None:
    expected = [line(block, x, y) for block in (0, 1) for x in (1, 3) for y in (0, 1)]
    assert lines_of(cuda, "together") == sorted(expected)


@on_device()
def test_a_kernel_that_waits_for_a_failed_thread_ends(cuda: Device) -> None:
    assert line(0, 0, 0) in lines_of(cuda, "alone")
