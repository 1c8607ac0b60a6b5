"""Handles that do not exist, and errors of posted commands: each is reported once, to the thread
that caused it.
"""

import pytest

from rgpu_common.wire.codec import Value
from worker.client import LEGACY, session

OUT_OF_MEMORY = 2
INVALID_VALUE = 1
INVALID_CONTEXT = 201
INVALID_HANDLE = 400

BAD_HANDLES: dict[str, dict[str, Value]] = {
    "rgpuStreamSynchronize": {"stream": 77},
    "rgpuStreamQuery": {"stream": 77, "version": 0, "notify": 0},
    "rgpuEventSynchronize": {"event": 77},
    "rgpuEventQuery": {"event": 77, "version": 0, "notify": 0},
    "rgpuEventElapsedTime": {"start": 77, "end": 78},
    "rgpuModuleGetFunction": {"module": 77, "name": b"f", "function": 90},
    "rgpuLibraryGetKernel": {"library": 77, "name": b"f", "kernel": 90},
    "rgpuKernelGetFunction": {"kernel": 77, "function": 90},
    "rgpuFunctionNames": {"module": 77, "library": 0},
    "rgpuFunctionLoad": {"function": 77, "load": 0},
    "rgpuPoolGetAttribute": {"pool": 77, "attribute": 4},
    "rgpuPoolAlloc": {"pool": 77, "bytes": 4096, "stream": LEGACY},
    "rgpuLinkComplete": {"link": 77, "limit": 100},
}


@pytest.mark.parametrize("name", BAD_HANDLES)
def test_a_handle_that_was_never_made_gives_400_and_nothing_else(name: str) -> None:
    with session() as client:
        assert client.result(name, **BAD_HANDLES[name]).status == INVALID_HANDLE
        assert client.call("rgpuPing", echo=1)["echo"] == 1
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0, "nothing was kept"


@pytest.mark.parametrize("name", sorted(BAD_HANDLES))
def test_a_context_that_was_never_made_gives_201(name: str) -> None:
    with session() as client:
        client.context = 99
        assert client.result(name, **BAD_HANDLES[name]).status in (INVALID_CONTEXT, INVALID_HANDLE)
        assert client.result("rgpuMemAlloc", bytes=4096).status == INVALID_CONTEXT


def test_a_handle_of_another_kind_is_not_found() -> None:
    with session() as client:
        client.post("rgpuEventCreate", event=21, flags=0)
        assert client.result("rgpuStreamSynchronize", stream=21).status == INVALID_HANDLE


def test_an_id_is_given_once() -> None:
    with session() as client:
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuStreamCreate", stream=20, flags=1, priority=0)
        client.post("rgpuStreamCreate", stream=LEGACY, flags=1, priority=0)
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_HANDLE
        assert client.result("rgpuStreamSynchronize", stream=20).status == 0


def test_an_error_waits_for_its_own_thread_and_is_told_once() -> None:
    """A bad launch on thread 1, an allocation on thread 2, then one on thread 1."""
    with session() as client:
        client.post("rgpuMemFree", dptr=0x1234, thread=1)
        free = client.call("rgpuMemGetInfo", thread=2)["free"]
        assert client.result("rgpuMemAlloc", bytes=1 << 20, thread=2).status == 0
        assert client.result("rgpuMemAlloc", bytes=1 << 20, thread=1).status == INVALID_VALUE
        assert client.call("rgpuMemGetInfo", thread=1)["free"] == int(free) - (1 << 20), (
            "nothing leaks"
        )
        assert client.result("rgpuMemAlloc", bytes=1 << 20, thread=1).status == 0, "told once"


def test_the_first_error_of_a_thread_is_kept() -> None:
    with session() as client:
        client.post("rgpuMemFree", dptr=0x1234)
        client.post("rgpuStreamWaitEvent", stream=LEGACY, event=77, flags=0)
        assert client.result("rgpuMemGetInfo").status == INVALID_VALUE
        assert client.result("rgpuMemGetInfo").status == 0


def test_calls_that_may_not_report_do_not() -> None:
    with session() as client:
        client.post("rgpuMemFree", dptr=0x1234)
        assert client.result("rgpuPing", echo=1).status == 0
        assert client.result("rgpuContextGetLimit", limit=0).status == 0
        assert client.result("rgpuMemGetInfo").status == INVALID_VALUE


def test_a_wait_for_the_context_drains_all_threads_and_tells_the_oldest() -> None:
    with session() as client:
        client.post("rgpuStreamWaitEvent", stream=LEGACY, event=77, flags=0, thread=3)
        client.post("rgpuMemFree", dptr=0x1234, thread=2)
        assert client.result("rgpuContextSynchronize", ctx=10, thread=1).status == INVALID_HANDLE
        for thread in (1, 2, 3):
            assert client.result("rgpuMemGetInfo", thread=thread).status == 0


def test_a_call_that_destroys_is_executed_and_reports() -> None:
    with session() as client:
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.post("rgpuMemFree", dptr=0x1234)
        client.result("rgpuContextDestroy", ctx=11)
        assert client.result("rgpuContextDestroy", ctx=11).status == INVALID_CONTEXT


def test_the_error_of_a_thread_that_ended_goes_to_the_context() -> None:
    with session() as client:
        client.post("rgpuMemFree", dptr=0x1234, thread=2)
        client.post("rgpuThreadGone", gone=2, thread=1)
        assert client.result("rgpuMemGetInfo", thread=5).status == INVALID_VALUE


def test_commands_on_what_failed_to_be_made_are_dropped() -> None:
    with session() as client:
        client.post("rgpuEventCreate", event=21, flags=4)  # interprocess, but timed
        client.post("rgpuEventRecord", event=21, stream=LEGACY, version=1, flags=0)
        client.post("rgpuStreamWaitEvent", stream=LEGACY, event=21, flags=0)
        client.post("rgpuEventDestroy", event=21)
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_VALUE, (
            "the first cause"
        )
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0


def test_addresses_that_are_not_the_sessions_are_refused() -> None:
    with session() as client:
        mine = client.alloc(4096)
        rows = {"pitch": 0, "width": 4096, "height": 1, "stream": LEGACY}
        for src in (0, 0x1000, mine + 1, mine - 1, mine + 4096):
            assert client.result("rgpuCopyDtoH", src=src, **rows).status == INVALID_VALUE
        huge = {"pitch": 1 << 62, "width": 16, "height": 1 << 40, "stream": LEGACY}
        assert client.result("rgpuCopyDtoH", src=mine, **huge).status == INVALID_VALUE
        client.upload(mine + 4090, b"past the end")
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_VALUE


def test_an_event_of_another_context_is_not_recorded() -> None:
    with session() as client:
        client.call("rgpuContextCreate", ctx=11, device=0, flags=0)
        client.post("rgpuEventCreate", event=21, flags=0, context=11)
        client.post("rgpuEventRecord", event=21, stream=LEGACY, version=1, flags=0)
        assert client.result("rgpuContextSynchronize", ctx=10).status == INVALID_HANDLE
        assert client.result("rgpuContextSynchronize", ctx=10).status == 0
