"""The shim and its process: threads, fork, exit, a server that dies, the trace."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server

WAITERS = """
import ctypes, threading
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))
flag = cuda.alloc(256)
cuda("cuMemsetD32_v2", c_uint64(flag), 0, c_size_t(64))
stream, event, memory = c_void_p(), c_void_p(), c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
cuda("cuEventCreate", byref(event), 0)
cuda("cuMemHostAlloc", byref(memory), c_size_t(4096), 0)
cuda("cuStreamSynchronize", None)
cuda("cuStreamWaitValue32_v2", stream, c_uint64(flag), 1, 1)
cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(flag), c_size_t(256), stream)
cuda("cuEventRecord", event, stream)
answers = {}
pageable, size = ctypes.create_string_buffer(256), c_size_t(256)

def poll():
    while (result := cuda.result("cuEventQuery", event)) == 600:
        pass
    return result

def run(name, body):
    cuda("cuCtxSetCurrent", context)
    answers[name] = body()

bodies = {
    "stream": lambda: cuda.result("cuStreamSynchronize", stream),
    "event": lambda: cuda.result("cuEventSynchronize", event),
    "context": lambda: cuda.result("cuCtxSynchronize"),
    "poll": poll,
    "copy": lambda: cuda.result("cuMemcpyDtoHAsync_v2", pageable, c_uint64(flag), size, stream),
}
threads = [threading.Thread(target=run, args=item) for item in bodies.items()]
for thread in threads:
    thread.start()
cuda.memory()  # a call of another thread does not wait for them
assert not answers
"""


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server whose workers are killed."""
    with Server(device="emulated:1GiB") as running:
        yield running


@pytest.mark.parametrize("transport", ["unix", "shm", "tcp"])
def test_everybody_who_waits_learns_that_the_worker_died(own: Server, transport: str) -> None:
    client = clients.start(
        own.address(transport),
        WAITERS
        + """
print("waiting")
for thread in threads:
    thread.join()
print(sorted(set(answers.values())), len(answers), cuda.result("cuCtxSynchronize"))
""",
        RGPU_LEASE=transport,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "waiting\n", client.communicate(timeout=60)
    for worker in own.children():
        with suppress(ProcessLookupError):  # the worker of an earlier test may end now
            os.kill(worker, signal.SIGKILL)
    output, errors = client.communicate(timeout=60)
    assert output == "[911] 5 911\n"
    assert errors.count("rgpu:") == 1, errors


def test_everybody_goes_on_when_the_value_is_written(server: str) -> None:
    code, output, errors = clients.run(
        server,
        WAITERS
        + """
other = c_void_p()
cuda("cuStreamCreate", byref(other), 1)
cuda("cuStreamWriteValue32_v2", other, c_uint64(flag), 1, 0)
for thread in threads:
    thread.join()
print(sorted(set(answers.values())), len(answers))
""",
    )
    assert (code, output) == (0, "[0] 5\n"), errors


def test_many_threads_share_the_channel(server: str) -> None:
    code, output, errors = clients.run(
        server,
        """
import ctypes, os, threading
from ctypes import byref, c_size_t, c_uint64, c_void_p
cuda.open()
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))
done = []

def work():
    cuda("cuCtxSetCurrent", context)
    stream, event = c_void_p(), c_void_p()
    cuda("cuStreamCreate", byref(stream), 1)
    cuda("cuEventCreate", byref(event), 2)
    place, size = cuda.alloc(1 << 16), 1 << 16
    back = ctypes.create_string_buffer(size)
    for turn in range(30):
        data = os.urandom(size)
        cuda("cuMemcpyHtoDAsync_v2", c_uint64(place), data, c_size_t(size), stream)
        cuda("cuEventRecord", event, stream)
        if turn % 2:
            cuda("cuEventSynchronize", event)
        while (result := cuda.result("cuEventQuery", event)) != 0:
            assert result == 600
        cuda.memory()
        cuda("cuMemcpyDtoHAsync_v2", back, c_uint64(place), c_size_t(size), stream)
        assert back.raw == data
    cuda.free(place)
    done.append(1)

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(done))
""",
    )
    assert (code, output) == (0, "8\n"), errors


def test_a_forked_child_starts_over(server: str) -> None:
    code, output, errors = clients.run(
        server,
        """
import os, sys
cuda.open()
place = cuda.alloc(4096)
cuda.upload(place, b"parent")
child = os.fork()
if child == 0:
    assert cuda.result("cuCtxSynchronize") == 3
    cuda.open()
    assert cuda.result("cuMemFree_v2", __import__("ctypes").c_uint64(place)) == 1
    mine = cuda.alloc(4096)
    cuda.upload(mine, b"child!")
    assert cuda.download(mine, 6) == b"child!"
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
child = os.fork()
if child == 0:
    sys.exit(0)  # says nothing for the parent
os.waitpid(child, 0)
assert cuda.download(place, 6) == b"parent"
print("ok")
""",
    )
    assert (code, output) == (0, "ok\n"), errors


def test_handles_are_checked(server: str) -> None:
    code, output, errors = clients.run(
        server,
        """
from ctypes import byref, c_uint64, c_void_p
print("before cuInit", cuda.result("cuCtxSynchronize"))
cuda.open()
stream = c_void_p()
cuda("cuStreamCreate", byref(stream), 0)
cuda("cuStreamDestroy_v2", stream)
inside = c_uint64(cuda.alloc(4096) + 1)
for call, *arguments in (
    ("cuStreamDestroy_v2", stream),
    ("cuStreamSynchronize", c_void_p(12345678)),
    ("cuEventRecord", None, None),
    ("cuModuleUnload", stream),
    ("cuCtxSetCurrent", stream),
    ("cuStreamCreate", None, 0),
    ("cuStreamCreate", byref(stream), 2),
    ("cuMemFree_v2", inside),
    ("cuModuleLoad", byref(stream), b"/no/such"),
    ("cuGetProcAddress_v2", b"cuImportExternalMemory", byref(stream), 13000, c_uint64(0), None),
    ("cuGetProcAddress_v2", b"", byref(stream), 13000, c_uint64(0), None),
    ("cuGetExportTable", byref(stream), b"0" * 16),
    ("cuGetExportTable", byref(stream), b"0" * 16),
):
    print(call, cuda.result(call, *arguments))
""",
    )
    assert code == 0, errors
    answers = [int(line.split()[-1]) for line in output.splitlines()]
    assert answers == [3, 400, 400, 400, 400, 201, 1, 1, 1, 301, 0, 0, 500, 500]
    # A function that was only looked up is not mentioned: the program went on and ended well.
    assert errors == ""


def test_a_name_too_long_for_a_frame_is_an_error_and_not_the_end(server: str) -> None:
    code, output, errors = clients.run(
        server,
        """
from ctypes import byref, c_size_t, c_void_p
cuda.open()
image = b".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
module, library, link, found = c_void_p(), c_void_p(), c_void_p(), c_void_p()
cuda("cuModuleLoadData", byref(module), image)
cuda("cuLibraryLoadData", byref(library), image, None, None, 0, None, None, 0)
cuda("cuLinkCreate_v2", 0, None, None, byref(link))
name = b"k" * (1 << 16)
for call, *arguments in (
    ("cuModuleGetFunction", byref(found), module, name),
    ("cuModuleGetGlobal_v2", byref(found), None, module, name),
    ("cuLibraryGetKernel", byref(found), library, name),
    ("cuLinkAddData_v2", link, 1, image, c_size_t(len(image)), name, 0, None, None),
):
    print(cuda.result(call, *arguments))
print(cuda.function(module.value, "k") != 0)  # the next commands come after the ones before
cuda.synchronize()
""",
    )
    assert (code, output) == (0, "1\n1\n1\n1\nTrue\n"), errors


def test_pinned_memory_goes_with_its_context(server: str) -> None:
    code, output, errors = clients.run(
        server,
        """
from ctypes import byref, c_size_t, c_void_p
cuda.open()
places = set()
for _ in range(3):
    context, memory = c_void_p(), c_void_p()
    cuda("cuCtxCreate_v2", byref(context), 0, 0)
    cuda("cuMemHostAlloc", byref(memory), c_size_t(1 << 20), 0)
    cuda("cuCtxDestroy_v2", context)
    places.add(memory.value)
    assert cuda.result("cuMemFreeHost", memory) == 1
print(len(places))
""",
    )
    assert (code, output) == (0, "1\n"), errors


def test_the_trace_counts_calls_bytes_and_writes(server: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.tsv"
    code, _, errors = clients.run(
        server,
        """
cuda.open()
place = cuda.alloc(1 << 20)
for _ in range(3):
    cuda.upload(place, bytes(1 << 20))
cuda.synchronize()
""",
        RGPU_TRACE=str(trace),
    )
    assert code == 0, errors
    rows = {line.split("\t")[0]: line.split("\t")[1:] for line in trace.read_text().splitlines()}
    assert rows["cuMemcpyHtoD_v2"][:2] == ["3", str(3 << 20)]
    assert rows["cuInit"][0] == rows["cuMemAlloc_v2"][0] == "1"
    assert int(rows["#commands"][0]) >= 5
