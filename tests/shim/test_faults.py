"""A kernel that fails is named, with its block, its thread and the address: to the program, in the
trace and in the server's log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_client.trace import format_trace
from rgpu_client.trace_page import read_traces

# Each thread of `wild` waits at a barrier; then thread (5, 1, 0) of block (1, 0, 0) writes to `at`.
# `plain` does the same without the barrier. `odd` adds to an address that is no multiple of 4.
# `past` reads far behind its shared memory. `deep` calls itself without end.
PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry wild(.param .u64 at) {
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [at];
  mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %ctaid.x;
  bar.sync 0;
  setp.eq.u32 %p1, %r1, 5; setp.eq.and.u32 %p2, %r2, 1, %p1; setp.eq.and.u32 %p3, %r3, 1, %p2;
  @%p3 st.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry plain(.param .u64 at) {
  .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>;
  ld.param.u64 %rd1, [at];
  mov.u32 %r3, %ctaid.x;
  setp.eq.u32 %p3, %r3, 1;
  @%p3 st.global.u32 [%rd1], %r3;
  ret;
}
.visible .entry odd(.param .u64 at) {
  .reg .b32 %r<2>; .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [at];
  bar.sync 0;
  atom.global.add.u32 %r1, [%rd1], 1;
  ret;
}
.visible .entry past(.param .u64 at) {
  .shared .b8 s[256]; .reg .b32 %r<2>; .reg .b64 %rd<2>;
  mov.u64 %rd1, s;
  add.u64 %rd1, %rd1, 200000;
  st.shared.u32 [%rd1], 1;
  ret;
}
.func again() {
  .local .b8 own[1024];
  st.local.u32 [own], 1;
  call again;
  ret;
}
.visible .entry deep(.param .u64 at) {
  call again;
  ret;
}
"""
SOURCE = """
import sys
from ctypes import c_uint64, c_void_p, addressof
name, result, past = {name!r}, {result}, {past}
cuda.open()
kernel = cuda.function(cuda.load({ptx!r}), name)
place = cuda.alloc(4096)
value = c_uint64(place + past)
print(hex(value.value), flush=True)
pointers = (c_void_p * 1)(addressof(value))
cuda("cuLaunchKernel", c_void_p(kernel), 2, 1, 1, 8, 2, 1, 0, None, pointers, None)
assert cuda.result("cuCtxSynchronize") == result
assert cuda.result("cuCtxSynchronize") == result
"""


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with Server(device="emulated:1GiB") as server:
        yield server


def fail(server: Server, folder: Path, name: str, result: int, past: int) -> tuple[str, str]:
    """Runs the kernel with an address `past` the beginning of an allocation of 4 KiB; returns what
    the program printed on stderr, and the address.
    """
    source = SOURCE.format(name=name, result=result, past=past, ptx=PTX.encode())
    code, output, errors = clients.run(
        server.unix, source, RGPU_LEASE=f"lease-{name}", RGPU_TRACE=str(folder)
    )
    assert code == 0, errors
    return errors, output.strip()


@pytest.mark.parametrize(
    ("name", "result", "past", "why"),
    [
        (
            "wild",
            700,
            8192,
            "kernel wild failed in block (1, 0, 0), thread (5, 1, 0): it accessed device address "
            "ADDRESS, where nothing is allocated",
        ),
        (
            "plain",
            700,
            8192,
            "kernel plain failed in block (1, 0, 0): it accessed device address ADDRESS, where "
            "nothing is allocated",
        ),
    ],
)
def test_the_kernel_is_named_everywhere(
    running: Server, tmp_path: Path, name: str, result: int, past: int, why: str
) -> None:
    errors, address = fail(running, tmp_path, name, result, past)
    sentence = why.replace("ADDRESS", address)
    assert sentence in errors
    (failure,) = read_traces(tmp_path).failures
    assert sentence in failure
    shown = " ".join(format_trace(read_traces(tmp_path)).split())
    assert (
        f"failed: the device reported CUDA_ERROR_ILLEGAL_ADDRESS in work submitted earlier: {sentence}"
        in shown
    )

    # The worker's output comes to the server's log by a pipe, beside what the client is told.
    def logged() -> bool:
        lines = running.told().splitlines()
        return any("(lease " in line and sentence in line for line in lines)

    wait_until(logged)


@pytest.mark.parametrize(
    ("name", "thread", "past"),
    [
        ("plain", "", 1 << 46),
        ("plain", "", -(1 << 40)),
        ("wild", ", thread (5, 1, 0)", 1 << 63),
        ("past", "", 0),
    ],
)
def test_an_address_outside_memory_is_not_told_as_another(
    running: Server, tmp_path: Path, name: str, thread: str, past: int
) -> None:
    """The device does not know the address, so the sentence has none."""
    errors, _ = fail(running, tmp_path, name, 700, past)
    block = "" if name == "past" else "1, 0, 0)"
    assert f"kernel {name} failed in block ({block}" in errors
    assert (
        f"){thread}: it accessed an address outside device memory, or outside its shared or local "
        "memory" in errors
    )
    assert "device address" not in errors


def test_a_full_stack_is_named(running: Server, tmp_path: Path) -> None:
    errors, _ = fail(running, tmp_path, "deep", 719, 0)
    assert "kernel deep failed in block (" in errors
    assert "the stack of a thread is full: functions that call themselves have 32 KiB" in errors
    assert "trap" not in errors


def test_a_misaligned_address_is_named(running: Server, tmp_path: Path) -> None:
    errors, _ = fail(running, tmp_path, "odd", 716, 2)
    assert "kernel odd failed in block (" in errors
    assert ", thread (0, 0, 0)" in errors
    assert "CUDA_ERROR_MISALIGNED_ADDRESS" in errors
