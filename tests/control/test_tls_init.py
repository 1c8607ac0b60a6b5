"""`rgpu tls init`: certificates for a try-out."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest
from helpers import clients
from helpers.needs import needs
from helpers.server import Server

from rgpu_common.command import main
from rgpu_server.identity.certificate_files import end_of

pytestmark = needs("openssl")


def init(folder: Path, *words: str) -> int:
    return main(["tls", "init", str(folder), *words])


def names_of(folder: Path) -> set[str]:
    decode = ssl._ssl._test_decode_cert  # type: ignore[attr-defined]
    found = decode(str(folder / "server.pem"))
    return {name for _, name in found["subjectAltName"]}


def test_a_folder_for_a_server_and_a_tenant(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "pki"
    assert init(folder, "--host", "gpu-node", "--host", "::1", "--tenant", "alice") == 0
    said = capfd.readouterr().out
    assert f"--config {folder}/rgpu.toml" in said
    assert f"RGPU_TLS_CERT={folder}/alice.pem" in said
    assert names_of(folder) == {"gpu-node", "0:0:0:0:0:0:0:1"}
    assert {path.name for path in folder.iterdir()} == {
        "ca.key", "ca.pem", "server.key", "server.pem", "alice.key", "alice.pem", "rgpu.toml",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o77 == 0 for path in folder.glob("*.key"))


def test_a_name_that_is_given_later_gets_a_new_certificate_of_the_server(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "--host", "old") == 0
    before = {name: (tmp_path / name).read_bytes() for name in ("ca.pem", "server.pem")}
    assert init(tmp_path, "--tenant", "alice") == 0
    assert (tmp_path / "server.pem").read_bytes() == before["server.pem"]
    capfd.readouterr()
    assert init(tmp_path, "--host", "new") == 0
    assert "reads them again" in capfd.readouterr().out
    assert names_of(tmp_path) == {"new"}
    assert (tmp_path / "ca.pem").read_bytes() == before["ca.pem"]
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
        tmp_path / "server.pem", tmp_path / "server.key"
    )


def test_a_certificate_near_its_end_is_made_anew(tmp_path: Path) -> None:
    words = ("--server", "node", "--host", "gpu")
    assert init(tmp_path, *words, "--days", "40") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert not (tmp_path / "server.pem").exists()
    assert init(tmp_path, *words, "--renew", "39") == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert init(tmp_path, *words, "--renew", "41") == 0
    changed = {name for name, text in before.items() if (tmp_path / name).read_bytes() != text}
    assert changed == {"node.pem", "node.key"}
    assert end_of((tmp_path / "ca.pem").read_bytes()) > time.time() + 3600 * 86400


def test_an_authority_near_its_end_signs_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "--host", "gpu") == 0
    before = (tmp_path / "server.pem").read_bytes()
    assert init(tmp_path, "--host", "gpu", "--renew", "3651") == 1
    assert "clients need its ca.pem before the servers use" in capfd.readouterr().err
    assert (tmp_path / "server.pem").read_bytes() == before


def test_what_cannot_be_made_leaves_what_is_there(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert init(tmp_path, "--host", "old") == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert init(tmp_path, "--host", "1.2.3.4.5") == 1  # taken for an address, which it is not
    assert "cannot make server.pem" in capfd.readouterr().err
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_server_and_a_client_take_what_it_made(tmp_path: Path) -> None:
    assert init(tmp_path, "--host", "localhost", "--host", "127.0.0.1", "--tenant", "alice") == 0
    config = (tmp_path / "rgpu.toml").read_text()
    variables = {"RGPU_TLS_CA": "ca.pem", "RGPU_TLS_CERT": "alice.pem", "RGPU_TLS_KEY": "alice.key"}
    alice = {name: str(tmp_path / file) for name, file in variables.items()}
    with Server(tls=config, device="emulated:256MiB") as server:
        code, output, errors = clients.run(server.tls, "cuda.open(); print('open')", **alice)
    assert (code, output) == (0, "open\n"), errors
