"""Completion never goes backwards: once the program has learned in any way that work is complete,
every query about that work, or about work before it, says so too.
"""

from __future__ import annotations

import pytest
from helpers import clients

# A stream that stands until `go()` is called, with an event behind the stand. The first query finds
# it not ready, so the shim waits for the worker's notice from then on.
HELD = """
import ctypes
from ctypes import byref, c_float, c_size_t, c_uint64, c_void_p
cuda.open()
NOT_READY = 600

def made(call, *rest):
    handle = c_void_p()
    cuda(call, byref(handle), *rest)
    return handle

def query(event):
    return cuda.result("cuEventQuery", event)

held, second, other = (made("cuStreamCreate", 1) for _ in range(3))
event, later, across = (made("cuEventCreate", 0) for _ in range(3))
gate = cuda.alloc(4)

def hold(turn):
    cuda("cuStreamWaitValue32_v2", held, c_uint64(gate), turn, 0)
    cuda("cuEventRecord", event, held)

def go(turn):
    cuda("cuStreamWriteValue32_v2", other, c_uint64(gate), turn, 0)

for turn in range(1, 21):
    hold(turn)
    {before}
    assert query(event) == NOT_READY
    assert cuda.result("cuStreamQuery", held) == NOT_READY
    {asked}
    go(turn)
    {learn}
    assert query(event) == 0, f"the event is not ready in turn {{turn}}"
    assert cuda.result("cuStreamQuery", held) == 0, f"the stream is not ready in turn {{turn}}"
print("forwards")
"""
WAITED_FOR = 'cuda("cuStreamWaitEvent", second, event, 0)'
# How the program learns of it: what it does before the first query, between the two, and how it
# learns.
WAYS = {
    "stream": ("", "", 'cuda("cuStreamSynchronize", held)'),
    "context": ("", "", 'cuda("cuCtxSynchronize")'),
    "event": ("", "", 'cuda("cuEventSynchronize", event)'),
    "later event": ('cuda("cuEventRecord", later, held)', "", 'cuda("cuEventSynchronize", later)'),
    "later event polled": (
        'cuda("cuEventRecord", later, held)',
        "assert query(later) == NOT_READY",
        "while query(later) == NOT_READY: pass",
    ),
    "stream that waits": (WAITED_FOR, "", 'cuda("cuStreamSynchronize", second)'),
    "polled stream that waits": (
        WAITED_FOR,
        'assert cuda.result("cuStreamQuery", second) == NOT_READY',
        'while cuda.result("cuStreamQuery", second) == NOT_READY: pass',
    ),
    "polled event behind a wait": (
        f'{WAITED_FOR}; cuda("cuEventRecord", across, second)',
        "assert query(across) == NOT_READY",
        "while query(across) == NOT_READY: pass",
    ),
    "time": (
        f'{WAITED_FOR}; cuda("cuEventRecord", across, second)',
        "",
        'while cuda.result("cuEventElapsedTime_v2", byref(c_float()), across, across): pass',
    ),
    "copy": (
        WAITED_FOR,
        "",
        'cuda("cuMemcpyDtoHAsync_v2", (ctypes.c_char * 4)(), c_uint64(gate), c_size_t(4), second); '
        'cuda("cuStreamSynchronize", second)',
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_complete_stays_complete(server: str, way: str) -> None:
    before, asked, learn = WAYS[way]
    source = HELD.format(before=before or "pass", asked=asked or "pass", learn=learn)
    code, output, errors = clients.run(server, source)
    assert (code, output) == (0, "forwards\n"), errors


HOST_FUNCTION = """
import ctypes, threading
called = threading.Event()
function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: called.set())
"""


def test_a_host_function_tells_of_the_work_before_it(server: str) -> None:
    """It runs behind a stream that waits for the event."""
    before = f'{WAITED_FOR}; called.clear(); cuda("cuLaunchHostFunc", second, function, None)'
    source = HELD.format(before=before, asked="pass", learn="assert called.wait(60)")
    code, output, errors = clients.run(server, HOST_FUNCTION + source)
    assert (code, output) == (0, "forwards\n"), errors


FREED = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p

class Array(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", ctypes.c_uint),
                ("channels", ctypes.c_uint)]

cuda.open()
before, total = cuda.memory()
for turn in range(30):
    arrays, places = [], []
    for _ in range(4):
        array = c_void_p()
        cuda("cuArrayCreate_v2", byref(array), byref(Array(1024, 2048, 0x20, 1)))
        arrays.append(array)
        place = c_uint64()
        cuda("cuMemAllocAsync", byref(place), c_size_t(8 << 20), None)
        places.append(place)
    for array, place in zip(arrays, places):
        cuda("cuMemFreeAsync", place, None)
        cuda("cuArrayDestroy", array)
    cuda.synchronize()
    free, _ = cuda.memory()
    if turn == 0:
        first = free  # a pool and the first array leave something behind
    assert free == first, f"{first - free} bytes are missing in turn {turn}"
print(first > before - (16 << 20), cuda.result("cuMemGetInfo_v2", byref(c_size_t()), None),
      cuda.result("cuMemGetInfo_v2", None, byref(c_size_t())))
"""


def test_memory_that_a_wait_covers_is_free_after_it(server: str) -> None:
    code, output, errors = clients.run(server, FREED)
    assert (code, output) == (0, "True 0 0\n"), errors


FREED_IN_A_STREAM = """
import ctypes
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()

def made(call, *rest):
    handle = c_void_p()
    cuda(call, byref(handle), *rest)
    return handle

def poll(call, handle):
    while cuda.result(call, handle) == 600:
        pass

def record(event, stream):
    cuda("cuEventRecord", event, stream)

stream, second, blocking = (made("cuStreamCreate", flags) for flags in (1, 1, 0))
event, across = (made("cuEventCreate", 0) for _ in range(2))
word = cuda.alloc(1 << 20)
host = (ctypes.c_char * (1 << 20))()

def allocated():
    places = [c_uint64() for _ in range(4)]
    for place in places:
        cuda("cuMemAllocAsync", byref(place), c_size_t(8 << 20), stream)
    return places

for place in allocated():
    cuda("cuMemFreeAsync", place, stream)
cuda.synchronize()
first, _ = cuda.memory()
for turn in range(12):
    for place in allocated():
        {free}
    {wait}
    free, _ = cuda.memory()
    assert free == first, f"{{first - free}} bytes are missing in turn {{turn}}"
print("all is free")
"""
FREE = 'cuda("cuMemFreeAsync", place, stream)'
WAIT_FOR_EVENT = 'cuda("cuEventSynchronize", event)'
RECORDED = "record(event, stream); {}".format
POLLED = RECORDED('poll("cuEventQuery", event); {}').format
ACROSS = RECORDED('cuda("cuStreamWaitEvent", second, event, 0); {}').format
# How the program frees, and how it waits: with what the client knows before the wait.
WAITS = {
    "event": (FREE, RECORDED(WAIT_FOR_EVENT)),
    "polled event": (FREE, POLLED(WAIT_FOR_EVENT)),
    "polled event and its stream": (FREE, POLLED('cuda("cuStreamSynchronize", stream)')),
    "polled event and the context": (FREE, POLLED("cuda.synchronize()")),
    "stream": (FREE, 'cuda("cuStreamSynchronize", stream)'),
    "polled stream": (
        FREE,
        'poll("cuStreamQuery", stream); cuda("cuStreamSynchronize", stream)',
    ),
    "another stream": (FREE, ACROSS('cuda("cuStreamSynchronize", second)')),
    "polled event of another stream": (
        FREE,
        ACROSS(
            'record(across, second); poll("cuEventQuery", across); '
            'cuda("cuEventSynchronize", across)'
        ),
    ),
    "event after a wait that came too early": (
        FREE,
        RECORDED(
            'cuda("cuStreamSynchronize", second); poll("cuEventQuery", event); '
            'cuda("cuEventSynchronize", event)'
        ),
    ),
    "event of a stream that is gone": (
        'cuda("cuMemFreeAsync", place, stream)',
        RECORDED(
            'cuda("cuStreamDestroy_v2", stream); stream = made("cuStreamCreate", 1); '
            'poll("cuEventQuery", event); cuda("cuEventSynchronize", event)'
        ),
    ),
    "small copy": (
        'cuda("cuMemFreeAsync", place, blocking)',
        'cuda("cuMemcpyDtoH_v2", host, c_uint64(word), c_size_t(4))',
    ),
    "large copy": (
        'cuda("cuMemFreeAsync", place, blocking)',
        'cuda("cuMemcpyDtoH_v2", host, c_uint64(word), c_size_t(1 << 20))',
    ),
    "context, after a plain free": ('cuda("cuMemFree_v2", place)', "cuda.synchronize()"),
}


@pytest.mark.parametrize("way", WAITS)
def test_what_pools_hold_is_free_after_each_wait(server: str, way: str) -> None:
    """Also where the client knew before the wait that the work is complete."""
    free, wait = WAITS[way]
    code, output, errors = clients.run(server, FREED_IN_A_STREAM.format(free=free, wait=wait))
    assert (code, output) == (0, "all is free\n"), errors


BLOCKING = """
from ctypes import c_uint64
TRAP = b'''.version 7.0
.target sm_80
.address_size 64
.visible .entry trap(.param .u64 a) { trap; }
'''
cuda.open()
function = cuda.function(cuda.load(TRAP), "trap")
try:
    cuda.launch(function, 1, 1, 0)
    print("launched")
except Exception as error:
    print(error.result)
"""


def test_a_blocking_launch_has_the_error_of_its_work(server: str) -> None:
    code, output, errors = clients.run(server, BLOCKING, CUDA_LAUNCH_BLOCKING="1")
    assert (code, output) == (0, "719\n"), errors
    code, output, errors = clients.run(server, BLOCKING)
    assert (code, output) == (0, "launched\n"), errors
