"""grpc: with TLS, certificates and access tokens, at a real server."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import clients, pki
from helpers.agent import GRPC, Agent
from helpers.command import run_rgpu as rgpu
from helpers.server import Server
from helpers.waiting import wait_until

from transport.grpc_programs import COPY

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(*GRPC) as running:
        yield running


def tls_server(tmp_path: Path, config: str, *arguments: str) -> Server:
    """A server on `grpcs:` with this configuration."""
    file = tmp_path / "server.toml"
    file.write_text(config)
    return Server("--listen", "grpcs:127.0.0.1:0", "--config", str(file), *arguments)


@pytest.mark.parametrize(
    ("certificate", "scheme", "sentence"),
    [
        ("server", "grpcs:", "): name the authority that signed it in RGPU_TLS_CA"),
        ("elsewhere", "grpcs:", "is not for '127.0.0.1': use a name that it is for"),
        ("expired-server", "grpcs:", "has expired: its operator has to renew it"),
        ("server", "grpc:", "write grpcs: where TLS is spoken"),
    ],
)
def test_why_no_tunnel_comes_about(
    tmp_path: Path, certificate: str, scheme: str, sentence: str
) -> None:
    trusted = {} if "RGPU_TLS_CA" in sentence else pki.client()
    with tls_server(tmp_path, pki.config(certificate), "--insecure") as server:
        where = scheme + server.grpc.removeprefix("grpcs:")
        done = rgpu("probe", where, **trusted)
        assert (done.returncode, sentence in done.stderr) == (1, True), done.stderr
        done = rgpu("run", "--server", where, "--", sys.executable, "-c",
                    clients.PRELUDE + "cuda.open()",
                    **trusted, PYTHONPATH=str(clients.TESTS))  # fmt: skip
        assert sentence in done.stderr


@pytest.mark.parametrize("file", ["certificate", "key"])
def test_a_server_without_what_tls_needs_does_not_start(tmp_path: Path, file: str) -> None:
    bad = tmp_path / "bad"
    bad.write_text("nothing in PEM")
    text = pki.config() + f'{file} = "{bad}"\n'
    lines = {line.partition(" =")[0]: line for line in text.splitlines()}
    config = tmp_path / "rgpu.toml"
    config.write_text("\n".join(["[tls]", *(lines[n] for n in ("certificate", "key"))]))
    done = rgpu("serve", "--listen", "grpcs:127.0.0.1:0", "--insecure", "--config", str(config))
    assert done.returncode == 2
    assert f"{str(bad)!r}" in done.stderr
    assert "cannot be used" in done.stderr


def test_a_client_without_the_certificate_that_is_asked_for(tmp_path: Path) -> None:
    text = pki.config().replace("client_ca", "require_client_cert = true\nclient_ca")
    with tls_server(tmp_path, text, "--insecure") as server:
        done = rgpu("probe", server.grpc, **pki.client())
        assert "RGPU_TLS_CERT where one is asked for" in done.stderr, done.stderr
        assert rgpu("probe", server.grpc, **pki.client("alice")).returncode == 0


def test_what_speaks_no_tls_is_told(server: Server) -> None:
    done = rgpu("probe", server.grpc.replace("grpc:", "grpcs:"))
    assert done.returncode == 1
    assert "speaks no TLS: write grpc:127.0.0.1:" in done.stderr
    done = rgpu("probe", "grpc:no.invalid:1")
    assert "the host name 'no.invalid' cannot be resolved" in done.stderr


def test_tls(tmp_path: Path) -> None:
    with tls_server(tmp_path, pki.config(), "--insecure") as server:
        assert server.grpc.startswith("grpcs:")
        assert "emulated" in rgpu("devices", "--server", server.grpc, **pki.client()).stdout
        with Agent(server.grpc, **pki.client()) as agent:
            assert clients.run(agent.unix, COPY)[:2] == (0, "ok\n")
        with Agent(server.grpc) as stranger:
            _, output, errors = clients.run(stranger.unix, "print(cuda.result('cuInit', 0))")
            assert output == "46\n"
            assert "name the authority that signed it in RGPU_TLS_CA" in errors


def test_certificates_name_the_tenant(tmp_path: Path) -> None:
    config = pki.config(more="require_client_cert = true")
    with tls_server(tmp_path, config) as server:
        alice = pki.client("alice")
        with Agent(server.grpc, **alice) as agent:
            client = clients.start(agent.unix, "cuda.open()\nprint('open')\nwait_for_line()")
            assert client.stdout is not None
            assert client.stdout.readline() == "open\n"
            listed = rgpu("ps", "--json", "--server", server.grpc, **alice)
            assert [s["tenant"] for s in json.loads(listed.stdout)["sessions"]] == ["alice"]
            others = rgpu("ps", "--json", "--server", server.grpc, **pki.client("bob"))
            assert json.loads(others.stdout)["sessions"] == []
            client.communicate("\n", timeout=60)
        with Agent(server.grpc, **pki.client()) as nobody:
            _, output, _ = clients.run(nobody.unix, "print(cuda.result('cuInit', 0))")
            assert output == "46\n"


def test_changed_certificates_are_read_again(tmp_path: Path) -> None:
    for name in ("pem", "key"):
        shutil.copy(pki.folder() / f"server.{name}", tmp_path / f"s.{name}")
    config = f'[tls]\ncertificate = "{tmp_path}/s.pem"\nkey = "{tmp_path}/s.key"\n'
    with tls_server(tmp_path, config, "--insecure") as server:
        here = ("devices", "--server", server.grpc)
        strange = pki.client() | {"RGPU_TLS_CA": str(pki.folder() / "stranger" / "ca.pem")}
        assert "emulated" in rgpu(*here, **pki.client()).stdout
        assert rgpu(*here, **strange).returncode == 1
        for name in ("pem", "key"):
            shutil.copy(pki.folder() / "stranger" / f"server.{name}", tmp_path / f"s.{name}")
        wait_until(lambda: "emulated" in rgpu(*here, **strange).stdout)
        (tmp_path / "s.pem").write_text("no certificate")
        wait_until(
            lambda: any("the gateway keeps its old certificates" in line for line in server.log)
        )
        assert "emulated" in rgpu(*here, **strange).stdout


def test_access_tokens_name_the_tenant(tmp_path: Path) -> None:
    tokens_file, token_file = tmp_path / "tokens.toml", tmp_path / "token"
    made = rgpu("token", "new", "alice", "--tokens", str(tokens_file), "--file", str(token_file))
    assert made.returncode == 0, made.stderr
    shown = {"RGPU_TOKEN_FILE": str(token_file)}
    ask = "print(cuda.result('cuInit', 0))"
    with Server("--listen", "grpc:127.0.0.1:0", "--tokens", str(tokens_file)) as server:
        with Agent(server.grpc) as agent:
            # A connection over HTTP/2 from this machine may come from a proxy, so it counts as
            # remote.
            _, output, errors = clients.run(agent.unix, ask)
            assert output == "46\n", errors
            assert "RGPU_TOKEN_FILE" in errors
            assert clients.run(agent.unix, ask, **shown)[1] == "0\n"
            assert clients.run(agent.unix, ask, RGPU_TOKEN="wrong")[1] == "46\n"
        refused = rgpu("devices", "--server", server.grpc)
        assert refused.returncode == 1
        assert "token" in refused.stderr
        assert "emulated" in rgpu("devices", "--server", server.grpc, **shown).stdout


def test_tls_needs_a_certificate() -> None:
    done = rgpu("serve", "--listen", "grpcs:127.0.0.1:0", "--insecure")
    assert done.returncode == 2
    assert "tls.certificate" in done.stderr
