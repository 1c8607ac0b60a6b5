"""Sessions that reach their server through a real HTTP/2 proxy with TLS, and nothing else."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients
from helpers.agent import GRPC, Agent
from helpers.command import rgpu_command
from helpers.gateway import Gateway, receive
from helpers.needs import needs
from helpers.nginx import Nginx
from helpers.server import Server, run_client
from helpers.waiting import wait_until

from transport.grpc_programs import copies, start_and_open

pytestmark = needs("nginx")
PROGRAMS = Path(__file__).resolve().parents[1] / "e2e" / "programs"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*GRPC) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with Nginx(tmp_path_factory.mktemp("nginx"), server.grpc) as running:
        yield running


@pytest.fixture(scope="module")
def agent(proxy: Nginx) -> Iterator[Agent]:
    with Agent(proxy.address, RGPU_TLS_CA=proxy.ca) as running:
        yield running


@pytest.mark.parametrize("program", ["numba_matmul", "core_memory_events"])
def test_programs(proxy: Nginx, program: str) -> None:
    path = str(PROGRAMS / f"{program}.py")
    result = run_client(proxy.address, sys.executable, path, RGPU_TLS_CA=proxy.ca)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.splitlines()[-1] == "ok"


def test_large_copies(agent: Agent) -> None:
    code, output, errors = clients.run(agent.unix, copies(48))
    assert (code, output) == (0, "ok\n"), errors


def test_a_proxy_is_told_from_tls(proxy: Nginx) -> None:
    address = proxy.address.replace("grpcs:", "tls:")
    errors = clients.run(address, "cuda.result('cuInit', 0)", RGPU_TLS_CA=proxy.ca)[2]
    assert "write grpcs: for a server's HTTP/2 or a proxy" in errors


def test_the_api(proxy: Nginx) -> None:
    done = subprocess.run(
        [rgpu_command(), "devices", "--server", proxy.address],
        env={**os.environ, "RGPU_TLS_CA": proxy.ca},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "emulated" in done.stdout, done.stderr


def test_many_sessions_share_the_way(agent: Agent) -> None:
    running = [clients.start(agent.unix, copies(4)) for _ in range(6)]
    ends = [client.communicate(timeout=100) for client in running]
    assert [output for output, _ in ends] == ["ok\n"] * 6, ends


@pytest.mark.full
def test_a_proxy_that_dies_and_comes_back(server: Server, tmp_path: Path) -> None:
    with Nginx(tmp_path, server.grpc) as proxy, Agent(proxy.address, RGPU_TLS_CA=proxy.ca) as agent:
        client = start_and_open(agent.unix)
        proxy.stop()
        output, errors = client.communicate("\n", timeout=60)
        assert output == "911\n", errors
        assert errors.startswith("rgpu")
        _, output, errors = clients.run(agent.unix, "print(cuda.result('cuInit', 0))")
        assert output == "46\n"
        assert "no rgpu server answers at grpcs:" in errors
        proxy.start()
        wait_until(lambda: clients.run(agent.unix, copies(1))[1] == "ok\n")


@pytest.mark.full
@pytest.mark.slow
def test_an_idle_tunnel_outlives_the_proxys_patience(tmp_path: Path) -> None:
    """The proxy closes connections that are idle for 10 s; both ends of a tunnel send something
    every 3 s, and on a busy machine somewhat later.
    """
    with (
        Gateway() as gateway,
        Nginx(tmp_path, gateway.address, seconds=10) as proxy,
        Agent(proxy.address, RGPU_TLS_CA=proxy.ca) as agent,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client,
    ):
        client.settimeout(30)
        client.connect(agent.unix.removeprefix("unix:"))
        client.sendall(b"hi")
        inner, _ = gateway.accept()
        with inner:
            assert receive(inner, 2) == b"hi"
            assert not select.select([client, inner], [], [], 15)[0]
            client.sendall(b"still")
            assert receive(inner, 5) == b"still"
            inner.sendall(b"here")
            assert receive(client, 4) == b"here"
