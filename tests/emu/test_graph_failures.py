"""Errors in graphs that run."""

from __future__ import annotations

import ctypes
import gc
import mmap
import threading

from emu.device import SECONDS, Device, expect, on_device
from emu.graphs import ON_DEVICE, ON_HOST, Graph, HostFn, Operation, copy_1d
from emu.kernels import HEAD, U64, load

ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, LAUNCH_FAILED = 700, 702, 719
WAIT_32, EQUAL = 1, 1
ENDLESS = HEAD + ".visible .entry endless() { again: bra again; }\n"


@on_device()
def test_a_fault_in_one_branch_stops_the_graph(cuda: Device) -> None:
    cuda.open()
    wild = cuda.function(load(cuda), "wild")
    endless = cuda.function(load(cuda, ENDLESS), "endless")
    called: list[int] = []
    event = cuda.event()
    graph = Graph(cuda)
    root = graph.empty()
    bad = graph.kernel(wild, [U64(0x2000_0FFF_0000)], root)
    other = graph.kernel(endless, [], root)
    graph.record(event, graph.host(lambda _: called.append(1), bad, other))
    exec_ = graph.instantiate()
    cuda("cuGraphLaunch", exec_, 0)
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuCtxSynchronize"))
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuEventSynchronize", event))
    assert called == []
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuGraphLaunch", exec_, 0))


@on_device(RGPU_EMU_LAUNCH_TIMEOUT="1")
def test_an_endless_kernel_in_a_graph_gets_a_timeout(cuda: Device) -> None:
    cuda.open()
    graph = Graph(cuda)
    graph.kernel(cuda.function(load(cuda, ENDLESS), "endless"), [])
    cuda("cuGraphLaunch", graph.instantiate(), 0)
    expect(LAUNCH_TIMEOUT, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_a_failed_graph_ends_its_waits(cuda: Device) -> None:
    """A branch that waits for a value ends when another branch fails."""
    cuda.open()
    trap = cuda.function(load(cuda), "trap_")
    memory = cuda.alloc(4)
    cuda("cuMemsetD32_v2", memory, 0, 1)
    graph = Graph(cuda)
    root = graph.empty()
    graph.batch([Operation(WAIT_32, memory, 1, EQUAL)], root)
    graph.kernel(trap, [], root)
    cuda("cuGraphLaunch", graph.instantiate(), 0)
    expect(LAUNCH_FAILED, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_memory_that_was_freed_since_is_a_fault(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(1 << 20)
    graph = Graph(cuda)
    graph.set(memory, 1, 4)
    exec_ = graph.instantiate()
    cuda.free(memory)
    cuda("cuCtxSynchronize")
    cuda("cuGraphLaunch", exec_, 0)
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_host_memory_that_is_gone_is_a_fault(cuda: Device) -> None:
    cuda.open()
    memory = cuda.alloc(64)
    page = mmap.mmap(-1, mmap.PAGESIZE)
    source = ctypes.addressof(ctypes.c_char.from_buffer(page))
    graph = Graph(cuda)
    graph.copy(copy_1d(memory, source, 64, (ON_DEVICE, ON_HOST)))
    exec_ = graph.instantiate()
    cuda("cuGraphLaunch", exec_, 0)
    cuda("cuCtxSynchronize")
    gc.collect()
    page.close()
    cuda("cuGraphLaunch", exec_, 0)
    expect(ILLEGAL_ADDRESS, lambda: cuda("cuCtxSynchronize"))


@on_device()
def test_a_graph_behind_a_failed_context_does_not_run(cuda: Device) -> None:
    cuda.open()
    trap = cuda.function(load(cuda), "trap_")
    gate, called = threading.Event(), []
    stream = cuda.stream(1)
    holder = HostFn(lambda _: gate.wait(SECONDS / 3) and None)
    cuda("cuLaunchHostFunc", stream, holder, ctypes.c_void_p())
    graph = Graph(cuda)
    graph.host(lambda _: called.append(1))
    event = cuda.event()
    graph.record(event)
    cuda("cuGraphLaunch", graph.instantiate(), stream)
    other = cuda.stream(1)
    cuda("cuLaunchKernel", trap, 1, 1, 1, 1, 1, 1, 0, other, None, None)
    expect(LAUNCH_FAILED, lambda: cuda("cuStreamSynchronize", other))
    gate.set()
    expect(LAUNCH_FAILED, lambda: cuda("cuStreamSynchronize", stream))
    expect(LAUNCH_FAILED, lambda: cuda("cuEventSynchronize", event))
    assert called == []
