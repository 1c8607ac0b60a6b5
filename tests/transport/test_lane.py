"""Sessions survive cuts: nothing lost, nothing twice, or a clear error within the deadline."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers import clients
from helpers.proxy import CuttingProxy
from helpers.server import Server
from helpers.waiting import wait_until

PTX = r"""
PTX = b'''.version 7.0
.target sm_50
.address_size 64
.visible .entry add_one(.param .u64 counter) {
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [counter];
  red.global.add.u32 [%rd1], 1;
  ret;
}
'''
import os, sys
from ctypes import byref, c_size_t, c_uint64, c_void_p, create_string_buffer
def go():
    print("ready", flush=True)
    wait_for_line()
cuda.open()
add_one = cuda.function(cuda.load(PTX), "add_one")
counter = cuda.alloc(4)
cuda.upload(counter, bytes(4))
"""
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
    """A client that has come to its `go()`."""
    client = clients.start(server, PTX + body, RGPU_MEMORY="256MiB", **extra)
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


def finish(client: subprocess.Popen[str], timeout: float = 60) -> tuple[str, str]:
    """Lets it run to its end: output and errors."""
    output, errors = client.communicate("\n\n", timeout=timeout)
    return output, errors


def counted(trace: Path) -> dict[str, int]:
    """The trace's line about cuts."""
    line = next(x for x in trace.read_text().splitlines() if x.startswith("#resumes"))
    words = line.lstrip("#").split("\t")
    return dict(zip(words[::2], map(int, words[1::2]), strict=True))


def configured(folder: Path, **sessions: object) -> str:
    """A configuration file."""
    path = folder / "rgpu.toml"
    rows = "".join(f"{key} = {value}\n" for key, value in sessions.items())
    path.write_text("[sessions]\n" + rows + "[leases]\ngrace_seconds = 0\n")
    return str(path)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(RGPU_LOG="info") as one:
        yield one


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits only a second for a client that was cut."""
    path = configured(tmp_path_factory.mktemp("hasty"), resume_grace_seconds=1)
    with Server("--config", path) as one:
        yield one


@pytest.mark.parametrize(
    ("body", "most"),
    [
        pytest.param(LAUNCHES, 300_000, id="launches"),
        pytest.param(UPLOAD, 20 << 20, id="upload"),
        pytest.param(DOWNLOAD, 20 << 20, id="download"),
        pytest.param(ASYNC, 20 << 20, id="async"),
        pytest.param(SYNCHRONISATIONS, 20_000, id="synchronisations"),
    ],
)
def test_nothing_is_lost_whatever_is_cut(
    server: Server, tmp_path: Path, body: str, most: int
) -> None:
    dice = random.Random(body)
    trace = tmp_path / "trace"
    with (
        CuttingProxy(server.tcp) as proxy,
        running(proxy.address, body, RGPU_TRACE=str(trace)) as client,
    ):
        proxy.cut_after(*(dice.randrange(1, most) for _ in range(6)))
        output, errors = finish(client)
        assert (output, errors) == ("True\n", "")
        assert proxy.cuts >= 5
    numbers = counted(trace)
    assert numbers["resumes"] + numbers["moves"] >= proxy.cuts


@pytest.mark.parametrize("seconds", [0.5, 5.0])
def test_a_cut_shorter_than_the_grace_is_not_noticed(server: Server, seconds: float) -> None:
    with CuttingProxy(server.tcp) as proxy, running(proxy.address, WAITS) as client:
        go_on(client)
        assert client.stdout is not None
        assert client.stdout.readline() == "waiting\n"
        proxy.cut(seconds)
        begin = time.monotonic()
        output, errors = finish(client)
        assert (output, errors) == ("True\n", "")
        assert seconds <= time.monotonic() - begin < seconds + 5


def test_a_cut_longer_than_the_grace_is_a_clear_error(hasty: Server) -> None:
    body = """
go()
try:
    while True:
        cuda.launch(add_one, 1, 1, counter)
        cuda.synchronize()
except CudaError as error:
    print(error.result, cuda.result("cuCtxSynchronize"))
"""
    with CuttingProxy(hasty.tcp) as proxy, running(proxy.address, body) as client:
        go_on(client)
        proxy.cut(60)
        begin = time.monotonic()
        output, errors = finish(client)
        assert output == "911 911\n"
        assert 0.9 < time.monotonic() - begin < 5
    assert errors.count("rgpu:") == 1
    assert "resume_grace" in errors
    wait_until(lambda: "python" not in hasty.sessions())
    assert not hasty.children() or "python" not in hasty.sessions()


def test_a_client_killed_while_it_is_cut_leaves_nothing(hasty: Server) -> None:
    with CuttingProxy(hasty.tcp) as proxy, running(proxy.address, "go()\n") as client:
        assert "python" in hasty.sessions()
        proxy.cut(60)
        client.kill()
        wait_until(lambda: "python" not in hasty.sessions(), 10)


def test_a_worker_killed_while_the_client_is_cut_is_told_at_once(server: Server) -> None:
    body = "go()\nprint(cuda.result('cuCtxSynchronize'))\n"
    with CuttingProxy(server.tcp) as proxy, running(proxy.address, body) as client:
        proxy.cut(0.5)
        for worker in server.children():
            os.kill(worker, signal.SIGKILL)
        begin = time.monotonic()
        output, errors = finish(client)
        assert output == "911\n"
        assert time.monotonic() - begin < 5
        assert "the session has ended" in errors
        assert errors.count("rgpu:") == 1


def test_the_worker_gives_up_a_connection_that_only_the_client_lost(server: Server) -> None:
    with CuttingProxy(server.tcp) as proxy, running(proxy.address, SYNCHRONISATIONS) as client:
        proxy.cut(half_open=True)
        assert finish(client) == ("True\n", "")


def test_another_path_is_taken_when_the_first_is_cut(server: Server, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with CuttingProxy(server.tcp) as first, CuttingProxy(server.tcp) as second:
        paths = f"tcp:{first.address};tcp:{second.address};{server.unix}"
        with running(
            first.address, SYNCHRONISATIONS, RGPU_PATHS=paths, RGPU_TRACE=str(trace)
        ) as client:
            go_on(client)
            first.cut(60)
            second.cut_after(10_000)
            assert finish(client) == ("True\n", "")
            assert second.cuts == 1
    assert counted(trace)["resumes"] >= 3


def test_a_session_begins_where_a_path_is_left(server: Server, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    nobody = "tcp:127.0.0.1:1"
    with CuttingProxy(server.tcp) as proxy:
        paths = f"unix:/no/such;tcp:{proxy.address};{server.unix}"
        with running(nobody, SYNCHRONISATIONS, RGPU_PATHS=paths, RGPU_TRACE=str(trace)) as client:
            proxy.cut(60)
            assert finish(client) == ("True\n", "")
            assert proxy.cuts >= 1
    assert counted(trace)["resumes"] >= 1


def test_nonsense_in_variables_is_said_and_passed_over(server: Server) -> None:
    paths = f"pigeon;grpc:a:1;{server.unix};tcp:127.0.0.1"
    code, output, errors = clients.run(
        "tcp:127.0.0.1:1", "print([cuda.result('cuInit', 0) for _ in range(2)])",
        RGPU_PATHS=paths, RGPU_LOG="loud",
    )  # fmt: skip
    assert (code, output) == (0, "[0, 0]\n")
    log, others = errors.splitlines()
    assert log.startswith("rgpu: RGPU_LOG=loud is not off, error, info or debug")
    assert others.startswith("rgpu: RGPU_PATHS: 'pigeon' is not an address and is ignored")


def test_nonsense_is_said_once_where_there_is_no_server() -> None:
    code, _, errors = clients.run(
        "tcp:127.0.0.1:1", "print([cuda.result('cuInit', 0) for _ in range(2)])",
        RGPU_PATHS="pigeon",
    )  # fmt: skip
    assert code == 0
    said, nobody = errors.splitlines()
    assert "'pigeon'" in said
    assert nobody.startswith("rgpu: nothing listens at 127.0.0.1:1")


def test_no_path_at_all_is_said_of_the_first(tmp_path: Path) -> None:
    code, _, errors = clients.run(
        "tcp:127.0.0.1:1", "print(cuda.result('cuInit', 0))", RGPU_PATHS="unix:/no/such"
    )
    assert code == 0
    assert errors.startswith("rgpu: nothing listens at 127.0.0.1:1"), errors


def test_a_session_outlives_the_daemon_and_a_cut(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with (
        Server(*state) as first,
        CuttingProxy(first.tcp) as proxy,
        running(proxy.address, SYNCHRONISATIONS) as client,
    ):
        first.stop()
        proxy.cut()
        with Server(*state) as second:
            proxy.target(second.tcp)
            assert finish(client) == ("True\n", "")
            wait_until(lambda: "python" not in second.sessions())


def test_without_a_grace_a_cut_ends_the_session_at_once(tmp_path: Path) -> None:
    path = configured(tmp_path, resume_grace_seconds=0)
    body = "go()\nprint(cuda.result('cuCtxSynchronize'))\n"
    with Server("--config", path) as server, CuttingProxy(server.tcp) as proxy:
        with running(proxy.address, body) as client:
            proxy.cut()
            output, errors = finish(client)
            assert output == "911\n"
        assert "ended the connection" in errors or "closed the connection" in errors
        with running(proxy.address, LAUNCHES, RGPU_RESUME="0") as client:
            assert finish(client) == ("True\n", "")
