"""`shm:` as programs have it: the real shim and a real server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import clients
from helpers.command import run_rgpu
from helpers.server import Server
from helpers.waiting import wait_until
from observe import page
from worker.client import hello

from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import HEADER_BYTES, Kind, encode_frame, parse_header
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import encode_hello
from rgpu_common.wire.shm import Shm, put_shm
from rgpu_common.wire.welcome import decode_welcome, encode_welcome

MIB = 1 << 20
MAPPINGS = """
cuda.open()
maps = open("/proc/self/maps").read()
print(*("memfd:" + name in maps for name in ("rgpu-ring", "rgpu-emu-heap")))
"""
# Sizes around the border between ring and direct copies, and more than one piece of the latter.
COPIES = """
import os
cuda.open()
for count in (1, 4095, 262143, 262144, 262145, 1 << 20, (5 << 20) + 7, (129 << 20) + 1):
    data = os.urandom(min(count, 1 << 20)) * (count // (1 << 20) + 1)
    data = data[:count]
    address = cuda.alloc(count)
    cuda.upload(address, data)
    assert cuda.download(address, count) == data
    cuda("cuMemsetD8_v2", ctypes.c_uint64(address), 7, ctypes.c_size_t(count))
    assert cuda.download(address, count) == bytes([7]) * count
    assert cuda.result("cuStreamQuery", None) == 0
    cuda.free(address)
print("ok")
"""
CTYPES = "import ctypes\n"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server("--metrics", "127.0.0.1:0") as running:
        yield running


def run(address: str, source: str, **environment: str) -> tuple[str, str]:
    code, output, errors = clients.run(address, CTYPES + textwrap.dedent(source), **environment)
    assert code == 0, output + errors
    return output, errors


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


def test_nothing_is_left_of_sessions_and_deaths(server: Server) -> None:
    shared = set(os.listdir("/dev/shm"))
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
    assert set(os.listdir("/dev/shm")) == shared


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


class Between:
    """A Unix proxy: bytes go through, descriptors do not, and WELCOME may be changed."""

    def __init__(self, folder: Path, server: str, grants: tuple[Wish, ...] | None) -> None:
        self.path = str(folder / "between.sock")
        self._server = server.removeprefix("unix:")
        self._grants = grants
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._open = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                upstream = socket.socket(socket.AF_UNIX)
                self._open += [client, upstream]
                upstream.connect(self._server)
                both = (
                    threading.Thread(target=self._pass, args=(client, upstream)),
                    threading.Thread(target=self._answer, args=(upstream, client)),
                )
                self._threads += both
                for thread in both:
                    thread.start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                other.sendall(data)
        with contextlib.suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)

    def _answer(self, upstream: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            header = parse_header(exactly(upstream, HEADER_BYTES))
            head = exactly(upstream, header.payload_bytes)
            frame = encode_frame(header.kind, header.opcode, head, status=header.status)
            welcome = header.kind is Kind.HANDSHAKE and header.opcode == Handshake.WELCOME
            if welcome and self._grants is not None:
                frame = encode_welcome(replace(decode_welcome(head), grants=self._grants))
                declined = put_shm(Shm(0, "a test"))
                upstream.sendall(encode_frame(Kind.HANDSHAKE, Handshake.SHM, declined))
            client.sendall(frame)
        self._pass(upstream, client)

    def close(self) -> None:
        for sock in self._open:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(20)
        for sock in self._open:
            sock.close()


def exactly(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        got = sock.recv(count - len(data))
        if not got:
            raise OSError("the end")
        data += got
    return data


@pytest.mark.parametrize(
    ("grants", "reason"),
    [
        (None, "did not arrive"),
        ((), "the server's release is older than shm:"),
        ((Wish(WishKey.SHM, 1 << 8),), "the server cannot make any (Operation not permitted)"),
    ],
)
def test_falls_back_to_the_socket_and_says_why_once(
    server: Server, tmp_path: Path, grants: tuple[Wish, ...] | None, reason: str
) -> None:
    before = fallbacks(server, "declined")
    between = Between(tmp_path, server.unix, grants)
    try:
        output, errors = run(f"shm:{between.path}", COPIES + MAPPINGS, RGPU_MEMORY="512MiB")
    finally:
        between.close()
    assert output.split() == ["ok", "False", "False"]
    (line,) = errors.splitlines()
    assert line.startswith("rgpu: no shared memory with the server: ")
    assert reason in line
    assert "uses the Unix socket instead" in line
    assert fallbacks(server, "declined") == before + 1


def fallbacks(server: Server, reason: str) -> float:
    return page.value(page.text(server), "rgpu_shm_fallbacks_total", reason=reason)


def test_sessions_with_a_ring_are_counted(server: Server) -> None:
    name = "rgpu_shm_sessions_total"
    before = page.value(page.text(server), name)
    run(server.address("shm"), MAPPINGS)
    run(server.address("unix"), MAPPINGS)
    assert page.value(page.text(server), name) == before + 1


def test_a_wish_that_comes_over_a_network_is_counted(server: Server) -> None:
    before = fallbacks(server, "not_local")
    host, _, port = server.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as client:
        client.sendall(encode_hello(hello(minor=2, wishes=(Wish(WishKey.SHM, 1),))))
        header = parse_header(exactly(client, HEADER_BYTES))
        assert header.opcode == Handshake.WELCOME
        assert decode_welcome(exactly(client, header.payload_bytes)).grants == ()
        wait_until(lambda: fallbacks(server, "not_local") == before + 1)


@pytest.mark.parametrize("transport", ["shm", "unix"])
def test_ps_says_over_what_a_session_goes(server: Server, transport: str) -> None:
    holder = clients.start(server.address(transport), "cuda.open(); print(flush=True); input()")
    try:
        clients_line = holder.stdout.readline() if holder.stdout is not None else ""
        assert clients_line == "\n"
        sessions = json.loads(run_rgpu("ps", "--json", "--server", server.tcp).stdout)["sessions"]
        assert [s["transport"] for s in sessions if s["client_pid"] == holder.pid] == [transport]
    finally:
        holder.communicate("\n", timeout=60)


def test_copies_are_counted_whichever_way_they_go(server: Server) -> None:
    source = """
    cuda.open()
    size = 16 << 20
    address = cuda.alloc(size)
    cuda.upload(address, bytes(size))
    cuda.download(address, size)
    print("copied", flush=True)
    wait_for_line()
    """
    client = clients.start(
        server.address("shm"), CTYPES + textwrap.dedent(source), RGPU_TENANT="counted"
    )
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == "copied\n"
        done = subprocess.run(
            [str(Path(sys.executable).parent / "rgpu"), "ps", "--server", server.unix, "--json"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert str(32 << 20) in done.stdout, done.stdout
    finally:
        client.communicate()
