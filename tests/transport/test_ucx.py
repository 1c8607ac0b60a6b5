"""ucx: over UCX's tcp and shared memory, and the sentence where there is no UCX."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.builder import FLAGS, ROOT, run
from helpers.command import rgpu_command
from helpers.ends import plant
from helpers.needs import needs
from helpers.server import UCX, Server, run_client
from helpers.waiting import wait_until

pytestmark = pytest.mark.full

PROGRAMS = Path(__file__).resolve().parents[1] / "e2e" / "programs"
COPY = """
import os
cuda.open()
for size in (1, 16383, 16385, 3 << 20, (24 << 20) + 7):
    data = os.urandom(size)
    address = cuda.alloc(size)
    cuda.upload(address, data)
    assert cuda.download(address, size) == data
    cuda.free(address)
print("ok")
"""
HOLD = """
import sys
cuda.open()
address = cuda.alloc(1 << 20)
print("here", flush=True)
for line in sys.stdin:
    cuda.upload(address, line.encode())
    print(cuda.download(address, len(line)).decode(), end="", flush=True)
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*UCX, device="emulated:256MiB") as running:
        yield running


def gateway(server: Server) -> int:
    (pid,) = server.children("rgpu-gateway")
    return pid


@needs("ucx")
def test_copies_both_ways(server: Server) -> None:
    for _ in range(2):
        status, output, errors = clients.run(server.ucx, COPY)
        assert (status, output, errors) == (0, "ok\n", "")


@needs("ucx")
def test_over_shared_memory() -> None:
    with Server(*UCX, device="emulated:256MiB", UCX_TLS="tcp,sysv,posix,self") as running:
        status, output, errors = clients.run(running.ucx, COPY, UCX_TLS="tcp,sysv,posix,self")
        assert (status, output, errors) == (0, "ok\n", "")


@needs("ucx")
@pytest.mark.parametrize("program", ["numba_matmul", "core_memory_events"])
def test_programs(server: Server, program: str) -> None:
    result = run_client(server.ucx, sys.executable, str(PROGRAMS / f"{program}.py"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "ok"


@needs("ucx")
def test_the_servers_processes_know_the_transport(server: Server) -> None:
    holder = clients.start(server.ucx, HOLD)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    shown = subprocess.run(
        [rgpu_command(), "ps", "--json", "--server", server.unix],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert '"transport": "ucx"' in shown
    holder.communicate("x\n")


@needs("ucx")
def test_a_program_that_dies_ends_its_session(server: Server) -> None:
    holder = clients.start(server.ucx, HOLD)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "here\n"
    before = sum('"session_ended"' in line for line in server.log)
    holder.kill()
    holder.communicate()
    wait_until(lambda: sum('"session_ended"' in line for line in list(server.log)) > before)
    assert clients.run(server.ucx, COPY)[0] == 0


@needs("ucx")
def test_garbage_harms_ucx_at_most() -> None:
    """UCX's own listener may end its process; docs/explanation/security.md says what that means."""
    plant(signal.SIGABRT)
    with Server(*UCX, device="emulated:256MiB") as server:
        where = ("127.0.0.1", int(server.ucx.rpartition(":")[2]))
        neighbour = clients.start(server.tcp, HOLD)
        assert neighbour.stdout is not None
        assert neighbour.stdout.readline() == "here\n"
        for garbage in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4096):
            with socket.create_connection(where, timeout=20) as stranger:
                stranger.sendall(garbage)
        wait_until(lambda: clients.run(server.ucx, COPY)[0] == 0)
        output, _ = neighbour.communicate("still here\n", timeout=60)
        assert output == "still here\n"


@needs("ucx")
def test_sessions_survive_a_gateway_that_dies() -> None:
    with Server(*UCX, device="emulated:256MiB") as server:
        first = gateway(server)
        holder = clients.start(server.ucx, HOLD)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "here\n"
        os.kill(first, signal.SIGKILL)
        output, errors = holder.communicate("still here\n", timeout=60)
        assert (output, errors) == ("still here\n", "")
        wait_until(lambda: clients.run(server.ucx, COPY)[0] == 0)
        assert gateway(server) != first


@needs("ucx")
def test_strangers_need_an_access_token_even_from_this_machine(tmp_path: Path) -> None:
    tokens_file = tmp_path / "tokens"
    made = subprocess.run(
        [rgpu_command(), "token", "new", "alice", "--tokens", str(tokens_file)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    access_token = made.stdout.split()[-1]
    arguments = ("--listen", "ucx:127.0.0.1:0", "--tokens", str(tokens_file))
    with Server(*arguments, device="emulated:256MiB") as server:
        status, _, errors = clients.run(server.ucx, COPY)
        assert status != 0
        assert "token" in errors
        assert clients.run(server.ucx, COPY, RGPU_TOKEN=access_token)[0] == 0


def test_without_access_tokens_a_server_does_not_listen() -> None:
    with pytest.raises(RuntimeError, match="can be reached from other machines"):
        Server("--listen", "ucx:127.0.0.1:0").__enter__()


def test_without_ucx_there_is_a_sentence() -> None:
    status, _, errors = clients.run("ucx:127.0.0.1:1", "cuda.open()", RGPU_LIBUCP="/nowhere.so")
    assert status != 0
    assert "ucx: needs UCX 1.13 or later" in errors
    with pytest.raises(RuntimeError, match="ucx: needs UCX 1"):
        Server(*UCX, RGPU_LIBUCP="/nowhere.so").__enter__()


@needs("ucx-headers")
def test_declarations_are_those_of_the_headers() -> None:
    source = ROOT / "tests" / "transport" / "ucp_layout.cc"
    done = run(os.environ.get("CXX", "c++"), *FLAGS, f"-I{ROOT}", "-fsyntax-only", source)
    assert done.returncode == 0, done.stderr
