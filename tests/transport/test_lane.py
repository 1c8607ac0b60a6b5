"""Sessions survive cuts: nothing lost, nothing twice, or a clear error within the deadline."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from helpers import clients
from helpers.figures import figures
from helpers.proxy import CuttingProxy
from helpers.server import Server, configured
from helpers.waiting import wait_until

from transport.cut_programs import (
    ASYNC,
    DOWNLOAD,
    LAUNCHES,
    SYNCHRONISATIONS,
    SYNCHRONISATIONS_UNTIL_TOLD,
    UPLOAD,
    WAITS,
    counted,
    finish,
    go_on,
    running,
)

# Half of what servers wait for a client that was cut: a busy machine may take long to let it, or a
# server, begin.
DEADLINE_SECONDS = 30


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The configuration of servers that wait long for a client that was cut."""
    grace = 2 * DEADLINE_SECONDS
    return configured(tmp_path_factory.mktemp("patient"), resume_grace_seconds=grace)


@pytest.fixture(scope="module")
def server(patient: str) -> Iterator[Server]:
    with Server("--config", patient, RGPU_LOG="info") as one:
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


@pytest.mark.measures
@pytest.mark.parametrize("seconds", [0.5, 5.0])
def test_a_cut_shorter_than_the_grace_is_not_noticed(server: Server, seconds: float) -> None:
    with CuttingProxy(server.tcp) as proxy, running(proxy.address, WAITS) as client:
        go_on(client)
        assert client.stdout is not None
        assert client.stdout.readline() == "waiting\n"
        begin = time.monotonic()
        proxy.cut(seconds)
        output, errors = finish(client)
        took = time.monotonic() - begin
        assert (output, errors) == ("True\n", "")
        assert took >= seconds
        with figures():
            assert took < seconds + 5


@pytest.mark.measures
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
        begin = time.monotonic()
        proxy.cut(60)
        output, errors = finish(client)
        took = time.monotonic() - begin
        assert output == "911 911\n"
        assert took > 0.9
    assert errors.count("rgpu:") == 1
    assert "resume_grace" in errors
    wait_until(lambda: "python" not in hasty.sessions())
    with figures():
        assert took < 5  # by default a server waits twice as long


def test_a_client_killed_while_it_is_cut_leaves_nothing(hasty: Server) -> None:
    with CuttingProxy(hasty.tcp) as proxy, running(proxy.address, "go()\n") as client:
        assert "python" in hasty.sessions()
        proxy.cut(60)
        client.kill()
        wait_until(lambda: "python" not in hasty.sessions(), DEADLINE_SECONDS)


def test_a_worker_killed_while_the_client_is_cut_is_told_at_once(server: Server) -> None:
    body = "go()\nprint(cuda.result('cuCtxSynchronize'))\n"
    with CuttingProxy(server.tcp) as proxy, running(proxy.address, body) as client:
        proxy.cut(0.5)
        for worker in server.children():
            with suppress(ProcessLookupError):  # the worker of an earlier test may end now
                os.kill(worker, signal.SIGKILL)
        begin = time.monotonic()
        output, errors = finish(client)
        assert output == "911\n"
        assert time.monotonic() - begin < DEADLINE_SECONDS
        assert "the server has ended this session: its worker is gone, and the server's" in errors
        assert "answers CUDA_ERROR_EXTERNAL_DEVICE (911) from now on; restart the" in errors
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
            first.address, SYNCHRONISATIONS_UNTIL_TOLD, RGPU_PATHS=paths, RGPU_TRACE=str(trace)
        ) as client:
            go_on(client)
            first.cut(60)
            second.cut_after(10_000)
            wait_until(lambda: second.cuts == 1)
            assert finish(client) == ("True\n", "")
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


def test_a_session_outlives_the_daemon_and_a_cut(patient: str, tmp_path: Path) -> None:
    state = ("--config", patient, "--state-dir", str(tmp_path / "state"))
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
