"""`shm:` as programs have it: the real shim and a real server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.ends import left_files, shared_files
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until

from transport.shm_programs import COPIES, CTYPES, MAPPINGS, run

MIB = 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--metrics", "127.0.0.1:0") as running:
        yield running


def test_programs_share_the_ring_and_the_devices_memory(server: Server) -> None:
    output, errors = run(server.address("shm"), MAPPINGS)
    assert output.split() == ["True", "True"]
    assert errors == ""
    assert run(server.address("unix"), MAPPINGS)[0].split() == ["False", "False"]


@pytest.mark.parametrize("transport", ["shm", "unix"])
def test_copies_of_all_sizes(server: Server, transport: str) -> None:
    output, _ = run(server.address(transport), COPIES, RGPU_MEMORY="512MiB")
    assert output == "ok\n"


def test_only_the_ring_where_the_host_cannot_reach_device_memory(tmp_path: Path) -> None:
    config = tmp_path / "rgpu.toml"
    config.write_text('[emulated]\ntiming = "hostile:3"\n')
    with Server("--config", str(config)) as server:
        assert run(server.address("shm"), MAPPINGS)[0].split() == ["True", "False"]
        assert run(server.address("shm"), COPIES, RGPU_MEMORY="512MiB")[0] == "ok\n"


def test_memory_that_is_not_there_is_an_error_and_no_death(server: Server) -> None:
    source = """
    import mmap
    cuda.open()
    size = 4 << 20
    address = cuda.alloc(size)
    cuda.upload(address, bytes(size))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    at = libc.mmap(None, size, 3, 0x22, -1, 0)
    libc.mprotect(ctypes.c_void_p(at + size // 2), ctypes.c_size_t(4096), 0)
    for count in (size, 512 << 10, 128 << 10):
        start = ctypes.c_void_p(at + size // 2 - count // 2)
        for name, arguments in (
            ("cuMemcpyHtoD_v2", (ctypes.c_uint64(address), start, ctypes.c_size_t(count))),
            ("cuMemcpyDtoH_v2", (start, ctypes.c_uint64(address), ctypes.c_size_t(count))),
        ):
            assert cuda.result(name, *arguments) == 1, (name, count)
    cuda.upload(address, bytes(size))
    assert cuda.download(address, size) == bytes(size)
    """
    run(server.address("shm"), source)


# T1 copies while T2 frees, launches and allocates: nothing may be torn, and nobody may die.
THREADS = """
import threading
cuda.open()
context = ctypes.c_void_p()
cuda("cuCtxGetCurrent", ctypes.byref(context))
size = 8 << 20
problems = []

def copies(seed):
    try:
        cuda("cuCtxSetCurrent", context)
        for step in range(12):
            address = cuda.alloc(size)
            data = bytes([seed * 16 + step]) * size
            cuda.upload(address, data)
            if cuda.download(address, size) != data:
                problems.append("torn")
            cuda.free(address)
    except CudaError as error:
        problems.append(str(error))

threads = [threading.Thread(target=copies, args=(seed,)) for seed in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(problems)
"""


def test_threads_that_copy_free_and_allocate(server: Server) -> None:
    assert run(server.address("shm"), THREADS, RGPU_MEMORY="256MiB")[0] == "[]\n"


FREES = """
import threading, time
cuda.open()
context = ctypes.c_void_p()
cuda("cuCtxGetCurrent", ctypes.byref(context))
size = 64 << 20
data = bytes(size)
for _ in range(4):
    address = cuda.alloc(size)

    def free():
        cuda("cuCtxSetCurrent", context)
        cuda.free(address)

    thread = threading.Thread(target=free)
    thread.start()
    result = cuda.result("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(size))
    thread.join()
    assert result in (0, 1), result
    cuda.synchronize()
# The last one is given back when its copy is known to be over.
deadline = time.monotonic() + 20
while time.monotonic() < deadline:
    free, total = cuda.memory()
    if total - free < 4 << 20:
        break
print(total - free < 4 << 20)
"""


def test_a_free_in_the_middle_of_a_copy(server: Server) -> None:
    assert run(server.address("shm"), FREES, RGPU_MEMORY="256MiB")[0] == "True\n"


@needs("root")  # who may look into a worker
def test_a_worker_that_dies_in_a_copy_is_an_error(server: Server) -> None:
    source = """
    cuda.open()
    size = 64 << 20
    address = cuda.alloc(size)
    data = bytes(size)
    print("open", flush=True)
    try:
        while True:
            cuda.upload(address, data)
    except CudaError as error:
        print("ended with", error.result)
    """
    for _ in range(3):
        client = clients.start(server.address("shm"), CTYPES + textwrap.dedent(source))
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == "open\n"
            worker = worker_of(client.pid)
            os.kill(worker, signal.SIGKILL)
            output, errors = client.communicate(timeout=60)
        finally:
            client.kill()
            client.wait()
        assert output == "ended with 911\n", errors
        wait_until(lambda worker=worker: not Path(f"/proc/{worker}").exists())  # type: ignore[misc]


def inodes(pid: int, name: str) -> set[int]:
    """The memory files of this name that a process has mapped."""
    found = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            if f"memfd:{name}" in line:
                found.add(int(line.split()[4]))
    return found


def worker_of(client: int) -> int:
    """The process that shares the client's ring."""
    (ring,) = inodes(client, "rgpu-ring")
    (worker,) = (
        pid
        for pid in (int(p) for p in os.listdir("/proc") if p.isdigit())
        if pid != client and ring in inodes(pid, "rgpu-ring")
    )
    return worker


@needs("root")  # who may look into a worker
def test_nothing_is_left_of_sessions_and_deaths(server: Server) -> None:
    shared = shared_files()
    assert server.process is not None
    run(server.address("shm"), MAPPINGS)
    fds = Path(f"/proc/{server.process.pid}/fd")
    wait_until(lambda: len(server.children()) > 0)
    before = len(list(fds.iterdir()))
    for kill in (False, True) * 4:
        client = clients.start(server.address("shm"), "cuda.open()\nprint(1)\nwait_for_line()")
        assert client.stdout is not None
        assert client.stdout.readline() == "1\n"
        worker = worker_of(client.pid)
        if kill:
            client.kill()
        client.communicate()
        wait_until(lambda worker=worker: not Path(f"/proc/{worker}").exists())  # type: ignore[misc]
    wait_until(lambda: len(list(fds.iterdir())) <= before + 2)
    # Others on this machine may use it meanwhile.
    wait_until(lambda: left_files() <= shared)


def test_a_forked_child_has_a_session_of_its_own(server: Server) -> None:
    source = """
    import os
    cuda.open()
    size = 2 << 20
    address = cuda.alloc(size)
    cuda.upload(address, b"p" * size)
    child = os.fork()
    if child == 0:
        assert cuda.result("cuCtxSynchronize") == 3
        mine = open("/proc/self/maps").read()
        assert "rgpu-ring" not in mine and "rgpu-emu-heap" not in mine
        cuda.open()
        other = cuda.alloc(size)
        cuda.upload(other, b"c" * size)
        ok = cuda.download(other, size) == b"c" * size
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert cuda.download(address, size) == b"p" * size
    """
    run(server.address("shm"), source)


CALLS = """
import time
cuda.open()
address = cuda.alloc(4)
started = time.monotonic()
for _ in range(2000):
    cuda.upload(address, b"1234")
    assert cuda.download(address, 4) == b"1234"
print("ok")
"""


@pytest.mark.parametrize("transport", ["shm"])
def test_one_processor_for_both_ends(transport: str) -> None:
    """An end that polls instead of sleeping would keep the other end from running."""
    one = str(min(os.sched_getaffinity(0)))
    everything = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {int(one)})
    try:
        with Server() as server:
            assert run(server.address(transport), CALLS)[0] == "ok\n"
            assert run(server.address(transport), COPIES, RGPU_MEMORY="512MiB")[0] == "ok\n"
    finally:
        os.sched_setaffinity(0, everything)


@needs("namespaces")
def test_containers_that_share_a_folder_only(server: Server) -> None:
    """Separate namespaces for processes, network, IPC and host name, and a separate /dev/shm."""
    program = CTYPES + clients.PRELUDE + COPIES + MAPPINGS
    command = [
        "unshare", "--net", "--ipc", "--uts", "--pid", "--fork", "--mount", "sh", "-c",
        'mount -t tmpfs none /dev/shm && exec "$@"', "sh", sys.executable, "-c", program,
    ]  # fmt: skip
    done = subprocess.run(
        command,
        env=clients.environment(server.address("shm"), RGPU_MEMORY="512MiB"),
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[0] == "ok"
    assert done.stdout.split()[-1] == "True"
