"""What a worker and a compiler could reach if a kernel or a PTX text took them over, and what
tenants can see of each other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.asking import running_on
from helpers.builder import run
from helpers.command import rgpu_command
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until

HOLD = """
cuda.open()
address = cuda.alloc(1 << 20)
cuda.upload(address, b"secret" * 1024)
print("open")
wait_for_line()
"""
# The attempts of a job, as the compiler starts it: none may succeed.
CHILD = """
import ctypes, os
from rgpu_emu.compile_sandbox import JobLimits, Report, limit_request
readable, writable = os.pipe()
before = os.getuid()
child = os.fork()
if child == 0:
    limit_request(writable, JobLimits(4 << 30, 60), Report())
    for attempt in (
        lambda: os.open("/etc/passwd", os.O_RDONLY),
        lambda: os.open("/tmp/attack", os.O_WRONLY | os.O_CREAT),
        lambda: os.listdir("/"),
        lambda: os.fork(),
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.kill(os.getppid(), 0),
        lambda: os.pipe(),
        lambda: os.setuid(0),
        lambda: os.chdir("/"),
    ):
        try:
            attempt()
            os.write(writable, b"+")
        except PermissionError:
            os.write(writable, b"-")
    libc = ctypes.CDLL(None)
    os.write(writable, b"+" if libc.socket(1, 1, 0) >= 0 else b"-")
    os.write(writable, b"m" if len(bytearray(1 << 24)) else b"")
    os._exit(0)
os.close(writable)
status = os.waitpid(child, 0)[1]
print(os.read(readable, 100).decode(), os.waitstatus_to_exitcode(status))
"""


def facts(pid: int) -> dict[str, str]:
    """/proc/PID/status as a dictionary."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def hold(server: Server, **settings: str) -> subprocess.Popen[str]:
    """A client with an open session, until a line comes."""
    client = clients.start(server.tcp, HOLD, **settings)
    assert client.stdout is not None
    assert client.stdout.readline() == "open\n"
    return client


def confined(server: Server) -> list[int]:
    """The workers, once all of them have given up their rights: one that has just started has them
    still, and gets no session.
    """
    found: list[int] = []

    def are_confined() -> bool:
        found[:] = server.children()
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # one has ended
            return bool(found) and all(facts(pid)["Seccomp"] == "2" for pid in found)
        return False

    wait_until(are_confined)
    return found


@needs("root")  # who may read the environment of a worker
def test_a_worker_has_no_rights(server: Server) -> None:
    client = hold(server)
    try:
        for pid in confined(server):
            status = facts(pid)
            assert status["NoNewPrivs"] == "1"
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
            assert "0" not in status["Uid"].split()
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"TOKEN" not in environment
            assert b"RGPU_" not in environment
            open_files = [os.readlink(f) for f in Path(f"/proc/{pid}/fd").iterdir()]
            kinds = ("pipe:", "socket:", "anon_inode:[eventfd]", "/memfd:", "/dev/null")
            assert [f for f in open_files if not f.startswith(kinds)] == []
    finally:
        client.communicate("go on\n", timeout=60)


def test_a_request_to_the_compiler_has_no_rights() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD],
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "-" * 10 + "m 0\n", done.stdout + done.stderr


def test_what_strangers_reach_has_no_rights() -> None:
    """The gateways and the probe's responder: not root, no capabilities, a list of system calls."""
    with Server("--listen", "grpc:127.0.0.1:0", "--insecure", tls=pki.config()) as running:
        done = run(rgpu_command(), "probe", f"tcp:{running.tcp}")
        assert done.returncode == 0, done.stderr
        gateways = running.children("rgpu-gateway")
        (responder,) = running.children("netprobe-responder")
        assert len(gateways) == 2
        for pid in (*gateways, responder):
            status, name = facts(pid), line_of(pid)
            assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1"), name
            assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0, name
            assert os.geteuid() != 0 or "0" not in status["Uid"].split(), name
            assert "Max core file size        0 " in Path(f"/proc/{pid}/limits").read_text()


def line_of(pid: int) -> str:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def test_memory_of_an_earlier_session_is_zero(server: Server) -> None:
    settings = {"RGPU_LEASE": "one-after-another", "RGPU_MEMORY": "64MiB"}
    for _ in range(2):
        code, output, errors = clients.run(
            server.tcp,
            """
            cuda.open()
            address = cuda.alloc(48 << 20)
            found = cuda.download(address, 48 << 20)
            print(found.count(0) == len(found))
            cuda.upload(address, b"secret__" * (6 << 20))
            """,
            **settings,
        )
        assert (code, output) == (0, "True\n"), errors


def test_addresses_of_another_session_mean_nothing(server: Server) -> None:
    client = hold(server)
    code, output, errors = clients.run(
        server.tcp,
        """
        import ctypes
        cuda.open()
        address = cuda.alloc(4096)
        wrong = [address + (1 << 20) * k for k in (1, 16, -1)] + [2**64 - 4096, 2**63, 0x1000]
        data = ctypes.create_string_buffer(4096)
        for at in wrong:
            print(cuda.result("cuMemcpyDtoH_v2", data, ctypes.c_uint64(at), ctypes.c_size_t(64)))
        for size in (4097, 2**63, 2**64 - 1, 2**64 - address % 2**64):
            print(cuda.result("cuMemcpyDtoD_v2", ctypes.c_uint64(address),
                              ctypes.c_uint64(address), ctypes.c_size_t(size)))
            print(cuda.result("cuMemsetD8_v2", ctypes.c_uint64(address), 1,
                              ctypes.c_size_t(size)))
        for pitch, width, height in ((2**63, 1, 3), (1, 16, 300), (2**40, 16, 2**40)):
            print(cuda.result("cuMemsetD2D8_v2", ctypes.c_uint64(address), ctypes.c_size_t(pitch),
                              1, ctypes.c_size_t(width), ctypes.c_size_t(height)))
        """,
    )
    assert code == 0, errors
    assert set(output.split()) == {"1"}, output
    client.communicate("go on\n", timeout=60)


def test_sizes_near_the_end_of_the_numbers_charge_nothing(server: Server) -> None:
    code, output, errors = clients.run(
        server.tcp,
        """
        import ctypes
        cuda.open()
        before = cuda.memory()
        p, pitch = ctypes.c_uint64(), ctypes.c_size_t()
        sizes = (2**64 - 1, 2**64 - 511, 2**64 - 512, 2**63, 2**40, (256 << 20) + 1)
        for size in sizes:
            n = ctypes.c_size_t(size)
            print(cuda.result("cuMemAlloc_v2", ctypes.byref(p), n))
            print(cuda.result("cuMemAllocAsync", ctypes.byref(p), n, None))
            pitched = cuda.result("cuMemAllocPitch_v2", ctypes.byref(p), ctypes.byref(pitch), n,
                                  ctypes.c_size_t(3), 4)
            assert pitched == (1 if size > 2**31 - 1 else 2), (size, pitched)
        cuda.synchronize()
        assert cuda.memory() == before, (cuda.memory(), before)
        """,
        RGPU_MEMORY="256MiB",
        RGPU_LEASE="sizes",
    )
    assert code == 0, errors
    assert set(output.split()) == {"2"}, output


def test_two_processes_that_race_are_charged_rightly(server: Server) -> None:
    lease = {"RGPU_MEMORY": "64MiB", "RGPU_LEASE": "racers"}
    source = """
    cuda.open()
    print("open")
    wait_for_line()
    import random
    held, most = [], 0
    for n in range(400):
        try:
            held.append(cuda.alloc(random.choice((1, 4096, 9 << 20, 17 << 20))))
        except CudaError as error:
            assert error.result == 2
        if len(held) > 3 or n % 3 == 0:
            while held:
                cuda.free(held.pop())
    while held:
        cuda.free(held.pop())
    cuda.synchronize()
    print("free")
    wait_for_line()
    print(*cuda.memory())
    """
    racers = [clients.start(server.tcp, source, **lease) for _ in range(2)]
    for word in ("open", "free"):
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == f"{word}\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go on\n")
            racer.stdin.flush()
    for racer in racers:
        output, errors = racer.communicate(timeout=60)
        free, total = (int(word) for word in output.split())
        assert (racer.returncode, total) == (0, 64 << 20), errors
        assert free == total, "what was freed is free again"


@pytest.mark.parametrize("who", ["client", "worker"])
def test_a_stopped_process_holds_up_nobody_else(server: Server, who: str) -> None:
    client = hold(server, RGPU_LEASE="stopped", RGPU_MEMORY="64MiB")
    stopped = client.pid if who == "client" else worker_of(server, client)
    os.kill(stopped, signal.SIGSTOP)
    try:
        for lease in ("stopped", "another"):
            code, output, errors = clients.run(
                server.tcp,
                "cuda.open(); cuda.free(cuda.alloc(1 << 20)); print('served')",
                RGPU_LEASE=lease,
                RGPU_MEMORY="64MiB",
            )
            assert (code, output) == (0, "served\n"), errors
    finally:
        client.kill()
        client.communicate()
        if who == "worker":
            os.kill(stopped, signal.SIGCONT)
    wait_until(lambda: len(server.children()) <= 2)


def worker_of(server: Server, client: subprocess.Popen[str]) -> int:
    """Returns the worker of a client's session."""
    sessions = running_on(server.tcp)["sessions"]
    (found,) = [one["worker_pid"] for one in sessions if one["client_pid"] == client.pid]
    return int(found)
