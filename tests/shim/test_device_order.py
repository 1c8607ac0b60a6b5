"""Order between streams of several devices: no worker knows the other one, so the client passes
on that an event has come (ADR 0022).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from helpers import pki
from helpers.agent import GRPC
from helpers.server import Server
from helpers.two_devices import HEAD, said

# On device 1 `held` waits for the word `gate`, which `release()` writes.
HELD = (
    HEAD
    + r"""
current(1)
gate, held = cuda.alloc(4), made("cuStreamCreate", 1)
cuda.upload(gate, bytes(4))
cuda("cuStreamWaitValue32_v2", held, c_uint64(gate), 1, 0)
current(0)

def release():
    current(1)
    cuda("cuStreamWriteValue32_v2", made("cuStreamCreate", 1), c_uint64(gate), 1, 0)
    current(0)
"""
)


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    second = ("--device", "emulated:512MiB")
    with Server(*GRPC, *second, device="emulated:1GiB", tls=pki.config()) as server:
        yield server


@pytest.fixture(params=["unix", "shm", "tcp", "tls", "grpc"])
def server(running: Server, request: pytest.FixtureRequest) -> str:
    return running.address(request.param)


def test_a_stream_waits_for_an_event_of_another_device(server: str) -> None:
    """The call does not wait, the streams do; each of them for what was recorded by then."""
    source = """
    import time
    current(1)
    event = made("cuEventCreate", 0)
    cuda("cuEventRecord", event, held)
    current(0)
    near, streams = cuda.alloc(8), [made("cuStreamCreate", 1) for _ in range(3)]
    cuda.upload(near, bytes(8))
    for number_of, stream in enumerate(streams[:2]):
        cuda("cuStreamWaitEvent", stream, event, 0)
        cuda("cuMemsetD32Async", c_uint64(near + 4 * number_of), 5 + number_of, c_size_t(1), stream)
    cuda("cuMemsetD32Async", c_uint64(near), 1, c_size_t(1), streams[2])
    cuda("cuStreamSynchronize", streams[2])
    print([cuda.result("cuStreamQuery", stream) for stream in streams], word(near))
    cuda("cuEventDestroy_v2", event)
    release()
    for stream in streams:
        cuda("cuStreamSynchronize", stream)
    print(word(near), word(near + 4))
    """
    assert said(server, source, HELD) == ["[600, 600, 0] 1", "5 6"]


def test_an_event_that_is_recorded_again_holds_nobody_longer(server: str) -> None:
    source = """
    near = made("cuStreamCreate", 1)
    current(1)
    free, event = made("cuStreamCreate", 1), made("cuEventCreate", 0)
    cuda("cuEventRecord", event, free)
    cuda("cuStreamWaitEvent", near, event, 0)
    cuda("cuEventRecord", event, held)
    current(0)
    cuda("cuStreamSynchronize", near)
    never = made("cuEventCreate", 0)
    current(1)
    cuda("cuStreamWaitEvent", free, never, 0)
    cuda("cuStreamSynchronize", free)
    print(cuda.result("cuEventQuery", event))
    release()
    cuda("cuEventSynchronize", event)
    """
    assert said(server, source, HELD) == ["600"]


def test_two_devices_take_turns(server: str) -> None:
    """Each adds to the word of the other one: 120 waits, copies and launches without a wait of the
    program. The events are recorded again and again.
    """
    source = """
    more, streams, events, words = [], [], [], []
    for device in (0, 1):
        current(device)
        more.append(cuda.function(cuda.load(PTX), "more"))
        streams.append(made("cuStreamCreate", 1))
        events.append(made("cuEventCreate", 2))
        words.append(cuda.alloc(4))
        cuda.upload(words[-1], bytes(4))
    for turn in range(120):
        own, other = turn % 2, 1 - turn % 2
        cuda("cuStreamWaitEvent", streams[own], events[other], 0)
        cuda("cuMemcpyPeerAsync", c_uint64(words[own]), contexts[own], c_uint64(words[other]),
             contexts[other], c_size_t(4), streams[own])
        assert launch(more[own], words[own], turn, streams[own]) == 0
        cuda("cuEventRecord", events[own], streams[own])
    cuda("cuStreamSynchronize", streams[1])
    current(1)
    print(word(words[1]) == sum(range(120)))
    """
    assert said(server, source) == ["True"]


def test_pinned_bytes_that_another_device_delivers_are_read_afterwards(server: str) -> None:
    source = """
    current(1)
    host, far, event = made("cuMemHostAlloc", c_size_t(8), 0), cuda.alloc(8), made("cuEventCreate", 0)
    words = (c_int * 2).from_address(host.value)
    cuda.upload(far, bytes([7] * 8))
    words[:] = 1, 1
    cuda("cuMemcpyDtoHAsync_v2", host, c_uint64(far), c_size_t(8), held)
    cuda("cuEventRecord", event, held)
    current(0)
    near, stream = cuda.alloc(8), made("cuStreamCreate", 1)
    cuda("cuStreamWaitEvent", stream, event, 0)
    cuda("cuMemcpyHtoDAsync_v2", c_uint64(near), host, c_size_t(8), stream)
    release()
    cuda("cuStreamSynchronize", stream)
    print(cuda.download(near, 8) == bytes([7] * 8))
    """
    assert said(server, source, HELD) == ["True"]


def test_a_function_of_the_program_holds_no_other_device_up(server: str) -> None:
    """It runs in the program for as long as it likes, while streams wait for another event."""
    source = """
    import threading
    go = threading.Event()
    function = ctypes.CFUNCTYPE(None, c_void_p)(lambda _: go.wait())
    current(1)
    busy, free, event = made("cuStreamCreate", 1), made("cuStreamCreate", 1), made("cuEventCreate", 0)
    cuda("cuLaunchHostFunc", busy, function, None)
    cuda("cuEventRecord", event, free)
    current(0)
    stream = made("cuStreamCreate", 1)
    cuda("cuStreamWaitEvent", stream, event, 0)
    cuda("cuStreamSynchronize", stream)
    print(cuda.result("cuStreamQuery", busy))
    go.set()
    cuda("cuStreamSynchronize", busy)
    """
    assert said(server, source) == ["600"]


def test_a_capture_stays_with_its_device(server: str) -> None:
    source = """
    current(1)
    far, event = made("cuStreamCreate", 1), made("cuEventCreate", 0)
    cuda("cuEventRecord", event, far)
    current(0)
    stream, near = made("cuStreamCreate", 1), cuda.alloc(4)
    cuda("cuStreamBeginCapture_v2", stream, 2)
    print(cuda.result("cuStreamWaitEvent", stream, event, 0))
    print(cuda.result("cuMemcpyPeerAsync", c_uint64(near), contexts[0], c_uint64(gate),
                      contexts[1], c_size_t(4), stream))
    mine = made("cuEventCreate", 0)
    cuda("cuEventRecord", mine, stream)
    print(cuda.result("cuStreamWaitEvent", far, mine, 0))
    graph = c_uint64()
    print(cuda.result("cuStreamEndCapture", stream, byref(graph)))
    print(cuda.result("cuStreamWaitEvent", stream, event, 1),
          cuda.result("cuCtxWaitEvent", contexts[0], event))
    release()
    """
    # The captured event outside its capture has ended that.
    assert said(server, source, HELD) == ["801", "801", "801", "901", "1 400"]


def test_a_device_that_fails_holds_no_other_device_up(server: str) -> None:
    """Streams that wait for it go on, and only its own calls tell of the error."""
    source = """
    current(1)
    event, fill = made("cuEventCreate", 0), cuda.function(cuda.load(PTX), "fill")
    assert launch(fill, 64, 1, held) == 0
    cuda("cuEventRecord", event, held)
    current(0)
    near, streams = cuda.alloc(64), [made("cuStreamCreate", 1) for _ in range(20)]
    for place, stream in enumerate(streams):
        cuda("cuStreamWaitEvent", stream, event, 0)
        cuda("cuMemsetD8Async", c_uint64(near + place), 3, c_size_t(1), stream)
    release()
    cuda("cuCtxSynchronize")
    print(cuda.download(near, 20) == bytes([3] * 20))
    print(cuda.result("cuEventSynchronize", event), cuda.result("cuStreamWaitEvent", streams[0], event, 0))
    cuda("cuCtxSynchronize")
    """
    assert said(server, source, HELD) == ["True", "700 700"]
