"""Many streams wait for values: what ends the waits, and what the waiting costs."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.preload import preload

from emu.children import Scenarios
from emu.device import SECONDS, TIMINGS, Device, expect, on_device, used
from emu.holding import EQ, GEQ, NON_BLOCKING, NOT_READY
from emu.kernels import HEAD, PTX, U64, load

HERE = Path(__file__).resolve().parent
ILLEGAL_ADDRESS = 700
MANY = 200
# handshake: writes the first word, then waits for the second.
HANDSHAKE = (
    HEAD
    + """
.visible .entry handshake(.param .u64 p)
{
  .reg .pred %p; .reg .b32 %r<3>; .reg .b64 %d;
  ld.param.u64 %d, [p];
  mov.u32 %r1, 1;
  st.volatile.global.u32 [%d], %r1;
again:
  ld.volatile.global.u32 %r2, [%d+4];
  setp.eq.u32 %p, %r2, 0;
  @%p bra again;
  ret;
}
"""
)


def words(cuda: Device, count: int) -> int:
    """Page-locked memory filled with 0."""
    address = cuda.pinned(4 * count)
    ctypes.memset(address, 0, 4 * count)
    return address


def waiting(cuda: Device, count: int, flag: int) -> list[int]:
    """Returns new streams that wait until the word at `flag` is 1."""
    streams = [cuda.stream(NON_BLOCKING) for _ in range(count)]
    for stream in streams:
        cuda("cuStreamWaitValue32_v2", stream, flag, 1, EQ)
    return streams


def until_all_sleep(count: int) -> None:
    """Returns when this process has `count` threads more than its first and all of them sleep."""
    deadline = time.monotonic() + SECONDS / 2
    while True:
        stats = [task.read_text() for task in Path("/proc/self/task").glob("[0-9]*/stat")]
        states = [stat.rpartition(") ")[2][0] for stat in stats]
        if len(states) > count and states.count("S") >= len(states) - 1:
            return
        assert time.monotonic() < deadline, states
        time.sleep(0.01)


@on_device()
def test_many_waiting_streams_use_little_of_a_processor(cuda: Device) -> None:
    cuda.open()
    flag = words(cuda, 1)
    streams = waiting(cuda, MANY, flag)
    until_all_sleep(MANY)
    before, since = used(), time.monotonic()
    time.sleep(1)  # nothing is waited for: this is the time that is measured
    assert used() - before < 0.1 * (time.monotonic() - since)
    cuda("cuStreamWriteValue32_v2", cuda.stream(NON_BLOCKING), flag, 1, 0)
    for stream in streams:
        cuda("cuStreamSynchronize", stream)


@on_device()
def test_a_write_ends_the_waits_for_its_value_alone(cuda: Device) -> None:
    cuda.open()
    flags = words(cuda, 2)
    others, streams = waiting(cuda, 20, flags + 4), waiting(cuda, MANY, flags)
    until_all_sleep(20 + MANY)
    cuda("cuStreamWriteValue32_v2", cuda.stream(NON_BLOCKING), flags, 1, 0)
    for stream in streams:
        cuda("cuStreamSynchronize", stream)
    assert {cuda.result("cuStreamQuery", stream) for stream in others} == {NOT_READY}
    cuda("cuStreamWriteValue32_v2", cuda.stream(NON_BLOCKING), flags + 4, 1, 0)
    cuda("cuCtxSynchronize")


@on_device()
def test_waits_that_end_one_after_the_other(cuda: Device) -> None:
    """The oldest wait ends first, then the newest, and so on: each time others wait on."""
    cuda.open()
    flags, writer = words(cuda, 32), cuda.stream(NON_BLOCKING)
    streams = [waiting(cuda, 1, flags + 4 * n)[0] for n in range(32)]
    left = list(range(32))
    while left:
        number = left.pop(0 if len(left) % 2 else -1)
        cuda("cuStreamWriteValue32_v2", writer, flags + 4 * number, 1, 0)
        cuda("cuStreamSynchronize", streams[number])
        assert {cuda.result("cuStreamQuery", streams[n]) for n in left} <= {NOT_READY}


def end_waits(cuda: Device, *, by_the_host: bool) -> None:
    """A stream waits for a value again and again; each time another kind of write ends the wait."""
    cuda.open()
    flag, source = words(cuda, 1), words(cuda, 1)
    value = ctypes.c_uint32.from_address(source)
    word, writer, waiter = cuda.alloc(8), cuda.stream(NON_BLOCKING), cuda.stream(NON_BLOCKING)
    add = cuda.function(load(cuda, PTX), "add")
    one = ctypes.c_uint32(1)
    kinds: dict[str, tuple[int, Callable[[], None]]] = {
        "value": (
            word,
            lambda: cuda("cuStreamWriteValue32_v2", writer, word, value.value, 0),
        ),
        "set": (word, lambda: cuda("cuMemsetD32Async", word, value.value, 1, writer)),
        "copy": (word, lambda: cuda("cuMemcpyHtoDAsync_v2", word, source, 4, writer)),
        "synchronous copy": (word, lambda: cuda.write(word, bytes(value))),
        "copy on the device": (word, lambda: cuda("cuMemcpyDtoDAsync_v2", word, source, 4, writer)),
        "copy to the host": (flag, lambda: cuda("cuMemcpyDtoHAsync_v2", flag, source, 4, writer)),
        "kernel": (word, lambda: cuda.launch(add, [U64(word), one], stream=writer)),
    }
    if by_the_host:
        kinds["the host"] = (flag, lambda: ctypes.memmove(flag, source, 4))
    for kind, (address, write) in kinds.items():
        # A kernel adds one to the word; all other writes copy `value`.
        value.value = word_at(cuda, address) + 1
        cuda("cuStreamWaitValue32_v2", waiter, address, value.value, GEQ)
        until_all_sleep(1)
        assert cuda.result("cuStreamQuery", waiter) == NOT_READY, kind
        write()
        cuda("cuStreamSynchronize", waiter)
        assert word_at(cuda, address) == value.value, kind


@on_device()
def test_every_kind_of_write_ends_a_wait(cuda: Device) -> None:
    end_waits(cuda, by_the_host=True)


def patient(cuda: Device) -> None:
    """What `test_a_write_in_stream_order_is_announced` runs in a child."""
    end_waits(cuda, by_the_host=False)


@pytest.mark.parametrize("timing", TIMINGS)
def test_a_write_in_stream_order_is_announced(
    tmp_path: Path, scenarios: Scenarios, timing: str
) -> None:
    """In the child the watcher never looks by itself, so each wait ends because of its write."""
    settings = preload(HERE / "patient_watch.cc", tmp_path)
    scenarios.run("test_value_waits", "patient", {"RGPU_EMU_TIMING": timing, **settings})


def word_at(cuda: Device, address: int) -> int:
    cuda("cuStreamSynchronize", 2)  # no work of this thread's stream is pending
    return int.from_bytes(cuda.read(address, 4), "little")


@on_device()
def test_a_wait_sees_what_a_running_kernel_writes(cuda: Device) -> None:
    """The kernel ends only after the stream that waits for its first word has gone on."""
    cuda.open()
    kernel, place = cuda.function(load(cuda, HANDSHAKE), "handshake"), words(cuda, 2)
    answer, streams = waiting(cuda, 1, place)[0], waiting(cuda, 8, place + 4)
    cuda("cuStreamWriteValue32_v2", answer, place + 4, 1, 0)
    until_all_sleep(9)
    cuda.launch(kernel, [U64(place)], stream=cuda.stream(NON_BLOCKING))
    for stream in (answer, *streams):
        cuda("cuStreamSynchronize", stream)
    cuda("cuCtxSynchronize")


@on_device()
def test_a_destroyed_context_ends_its_own_waits_alone(cuda: Device) -> None:
    primary = cuda.open()
    flag = words(cuda, 1)
    made = cuda.out("cuCtxCreate_v2", 0, 0)
    waiting(cuda, 4, flag)  # these are first, so one of them checks for all
    until_all_sleep(4)
    cuda("cuCtxSetCurrent", primary)
    kept = waiting(cuda, 4, flag)
    cuda("cuCtxDestroy_v2", made)
    assert {cuda.result("cuStreamQuery", stream) for stream in kept} == {NOT_READY}
    cuda("cuStreamWriteValue32_v2", cuda.stream(NON_BLOCKING), flag, 1, 0)
    cuda("cuCtxSynchronize")


@on_device()
def test_an_error_ends_all_waits(cuda: Device) -> None:
    cuda.open()
    wild = cuda.function(load(cuda, PTX), "wild")
    streams = waiting(cuda, 8, words(cuda, 1))
    until_all_sleep(8)
    cuda.launch(wild, [U64(16)], stream=cuda.stream(NON_BLOCKING))
    for stream in streams:
        expect(ILLEGAL_ADDRESS, lambda stream=stream: cuda("cuStreamSynchronize", stream))
