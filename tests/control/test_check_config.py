"""`rgpu serve --check-config`: a configuration is judged, and no server starts."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from helpers.command import run_rgpu_plain as rgpu
from helpers.needs import needs

from rgpu_common.command import main


def check(config: Path, text: str) -> tuple[int, str]:
    config.write_text(text)
    done = rgpu("serve", "--check-config", "--config", str(config))
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def test_it_says_what_would_be_served_and_serves_nothing(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        status, said = check(
            tmp_path / "rgpu.toml",
            f"""
            listen = ["{taken}"]
            devices = ["emulated:2GiB,mig=1g.10gb", "cuda:1"]
            [server]
            state = "{tmp_path}/no/state"
            [emulated]
            cache = "{tmp_path}/no/cache"
            """,
        )
    assert status == 0, said
    devices = "emulated:2GiB,mig=1g.10gb, cuda:1"
    assert said == f"rgpu: the configuration is right: {devices} on {taken}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["rgpu.toml"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lissten = ['127.0.0.1:0']", "lissten"),
        ("[identity]\ntokens = '/no/tokens'", "there is no tokens file /no/tokens: `rgpu token"),
        ("[identity]\nclaim_key = '/no/key'", "/no/key"),
        ("[emulated]\ncache = '/proc/rgpu'", "emulated.cache: '/proc/rgpu' is not a folder"),
        ("[record]\nfolder = '/dev/null/x'", "record.folder: '/dev/null/x' is not a folder"),
        ("[server]\nstate = '/proc/rgpu'", "server.state: '/proc/rgpu' is not a folder"),
        (
            "[cluster]\njoin = '127.0.0.1:1'\ntoken = '/no/token'",
            "cluster.token: '/no/token' cannot be read (No such file or directory)",
        ),
        (
            "listen = ['tls:127.0.0.1:0']\n[tls]\ncertificate = '/etc/hosts'\nkey = '/etc/hosts'",
            "tls.certificate '/etc/hosts' and tls.key '/etc/hosts' cannot be used",
        ),
    ],
)
def test_what_it_refuses(tmp_path: Path, text: str, sentence: str) -> None:
    status, said = check(tmp_path / "rgpu.toml", text)
    assert status == 2, said
    assert sentence in said
    assert said.startswith("rgpu: ")
    assert said.count("\n") == 1


@needs("openssl")
def test_certificates_are_read(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    pki = tmp_path / "pki"
    assert main(["tls", "init", str(pki), "--host", "gpu-node", "--tenant", "a"]) == 0
    capfd.readouterr()
    made = (pki / "rgpu.toml").read_text()
    assert check(tmp_path / "rgpu.toml", made)[0] == 0
    (pki / "ca.pem").write_text("no certificate")
    status, said = check(tmp_path / "rgpu.toml", made)
    assert status == 2
    assert f"tls.client_ca '{pki}/ca.pem' cannot be used" in said
