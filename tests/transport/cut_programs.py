"""Programs whose connection the tests cut, and their output."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers import clients

START = r"""
from helpers.add_one import PTX
import os, select, sys
from ctypes import byref, c_size_t, c_uint64, c_void_p, create_string_buffer
def go():
    print("ready", flush=True)
    wait_for_line()
def told():
    return bool(select.select([sys.stdin], [], [], 0)[0])
def until_told():
    yield  # at least once, also if this process gets a processor late
    while not told():
        yield
cuda.open()
add_one = cuda.function(cuda.load(PTX), "add_one")
counter = cuda.alloc(4)
cuda.upload(counter, bytes(4))
"""


LAST_CALL = "go()\nprint(cuda.result('cuCtxSynchronize'), cuda.result('cuCtxSynchronize'))\n"


LAUNCHES = """
go()
for _ in range(20000):
    cuda.launch(add_one, 1, 32, counter)
print(int.from_bytes(cuda.download(counter, 4), "little") == 20000 * 32)
"""


UPLOAD = """
size = 64 << 20
data = os.urandom(size)
place = cuda.alloc(size)
go()
cuda.upload(place, data)
print(cuda.download(place, size) == data)
"""


DOWNLOAD = """
size = 64 << 20
data = os.urandom(1 << 20) * 64
place = cuda.alloc(size)
cuda.upload(place, data)
go()
print(all(cuda.download(place, size) == data for _ in range(2)))
"""


ASYNC = """
size = 32 << 20
data = os.urandom(size)
place, stream, memory = cuda.alloc(size), c_void_p(), c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
cuda("cuMemHostAlloc", byref(memory), c_size_t(size), 0)
go()
for _ in range(3):
    cuda("cuMemcpyHtoDAsync_v2", c_uint64(place), data, c_size_t(size), stream)
    cuda("cuMemcpyDtoHAsync_v2", memory, c_uint64(place), c_size_t(size), stream)
cuda("cuStreamSynchronize", stream)
print((__import__("ctypes").c_char * size).from_address(memory.value).raw == data)
"""


SYNCHRONISATIONS = """
go()
for step in range(2000):
    cuda.launch(add_one, 1, 1, counter)
    cuda.synchronize()
print(int.from_bytes(cuda.download(counter, 4), "little") == 2000)
"""


# The next two work until `finish`, so that what a test does meanwhile always meets them at work.
SYNCHRONISATIONS_UNTIL_TOLD = """
go()
steps = 0
for _ in until_told():
    cuda.launch(add_one, 1, 1, counter)
    cuda.synchronize()
    steps += 1
print(int.from_bytes(cuda.download(counter, 4), "little") == steps)
"""


ASYNC_UNTIL_TOLD = ASYNC.replace("range(3)", "until_told()")


WAITS = """
stream = c_void_p()
other = c_void_p()
cuda("cuStreamCreate", byref(stream), 1)
cuda("cuStreamCreate", byref(other), 1)
cuda("cuStreamWaitValue32_v2", stream, c_uint64(counter), 1, 1)
import threading
context = c_void_p()
cuda("cuCtxGetCurrent", byref(context))
answers = []
def wait():
    cuda("cuCtxSetCurrent", context)
    answers.append(cuda.result("cuStreamSynchronize", stream))
thread = threading.Thread(target=wait)
thread.start()
go()
print("waiting", flush=True)
wait_for_line()
cuda("cuStreamWriteValue32_v2", other, c_uint64(counter), 1, 0)
thread.join()
print(answers == [0])
"""


@contextmanager
def running(server: str, body: str, **extra: str) -> Iterator[subprocess.Popen[str]]:
    """Starts a client; returns when it waits at its `go()`."""
    client = clients.start(server, START + body, RGPU_MEMORY="256MiB", **extra)
    try:
        assert client.stdout is not None
        line = client.stdout.readline()
        assert line == "ready\n", (line, client.communicate()[1])
        yield client
    finally:
        client.kill()
        client.communicate()


def go_on(client: subprocess.Popen[str]) -> None:
    assert client.stdin is not None
    client.stdin.write("\n")
    client.stdin.flush()


def finish(client: subprocess.Popen[str], timeout: float = 150) -> tuple[str, str]:
    """Lets it run to its end: output and errors."""
    output, errors = client.communicate("\n\n", timeout=timeout)
    return output, errors


def counted(trace: Path) -> dict[str, int]:
    """The trace's line about cuts."""
    line = next(x for x in trace.read_text().splitlines() if x.startswith("#resumes"))
    words = line.lstrip("#").split("\t")
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))
