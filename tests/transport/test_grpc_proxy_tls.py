"""A real HTTP/2 proxy that speaks TLS to the gateway as well."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.agent import Agent
from helpers.command import rgpu_command
from helpers.needs import needs
from helpers.nginx import Nginx
from helpers.server import Server

from transport.grpc_programs import COPY

pytestmark = needs("nginx")
NOBODY = "print(cuda.result('cuInit', 0))"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with tls_server(tmp_path_factory.mktemp("server"), pki.config(), "--insecure") as running:
        yield running


@pytest.fixture(scope="module")
def proxy(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with Nginx(tmp_path_factory.mktemp("nginx"), server.grpc) as running:
        yield running


def tls_server(folder: Path, config: str, *arguments: str) -> Server:
    file = folder / "server.toml"
    file.write_text(config)
    return Server("--listen", "grpcs:127.0.0.1:0", "--config", str(file), *arguments)


def rgpu(proxy: Nginx, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [rgpu_command(), *arguments, "--server", proxy.address],
        env={**os.environ, "RGPU_TLS_CA": proxy.ca}, cwd="/", capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.full
def test_sessions_and_the_api(proxy: Nginx) -> None:
    with Agent(proxy.address, RGPU_TLS_CA=proxy.ca) as agent:
        running = [clients.start(agent.unix, COPY) for _ in range(3)]
        ends = [client.communicate(timeout=100) for client in running]
        assert [output for output, _ in ends] == ["ok\n"] * 3, ends
    done = rgpu(proxy, "devices")
    assert "emulated" in done.stdout, done.stderr


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("grpc_ssl_protocols", "TLSv1.2"),
        ("grpc_ssl_name", "gpu.elsewhere"),
        ("grpc_ssl_trusted_certificate", "{pki}/stranger/ca.pem"),
    ],
)
def test_a_proxy_that_does_not_agree_with_the_gateway(
    server: Server, tmp_path: Path, name: str, value: str
) -> None:
    settings = {name: value.format(pki=pki.folder())}
    with (
        Nginx(tmp_path, server.grpc, settings=settings) as proxy,
        Agent(proxy.address, RGPU_TLS_CA=proxy.ca) as agent,
    ):
        _, output, errors = clients.run(agent.unix, NOBODY)
        assert output == "46\n"
        assert "no rgpu server answers at grpcs:" in errors
        # gRPC does not always read the status of an error page before the page ends.
        assert "(HTTP status 502)" in errors or "(an HTTP answer that is not gRPC's)" in errors
        assert "look at the log of the proxy there" in errors
        done = rgpu(proxy, "devices")
        assert done.returncode == 1
        assert proxy.address in done.stderr


@pytest.mark.full
def test_whose_certificate_the_gateway_sees(tmp_path: Path) -> None:
    """The gateway sees the proxy's certificate, also when TLS resumes an earlier session."""
    shows = {"grpc_ssl_certificate": f"{pki.folder()}/alice.pem",
             "grpc_ssl_certificate_key": f"{pki.folder()}/alice.key"}  # fmt: skip
    config = pki.config(more="require_client_cert = true")
    with (
        tls_server(tmp_path, config) as server,
        Nginx(tmp_path, server.grpc, settings=shows) as proxy,
        Agent(proxy.address, **pki.client("bob")) as agent,
    ):
        held = [clients.start(agent.unix, "cuda.open()\nprint('open')\nwait_for_line()")
                for _ in range(3)]  # fmt: skip
        for client in held:
            assert client.stdout is not None
            assert client.stdout.readline() == "open\n"
        listed = rgpu(proxy, "ps", "--json")
        assert [s["tenant"] for s in json.loads(listed.stdout)["sessions"]] == ["alice"] * 3
        for client in held:
            client.communicate("\n", timeout=60)
    with (
        tls_server(tmp_path, config) as server,
        Nginx(tmp_path, server.grpc) as proxy,
        Agent(proxy.address, **pki.client("bob")) as agent,
    ):
        _, output, errors = clients.run(agent.unix, NOBODY)
        assert output == "46\n", errors
