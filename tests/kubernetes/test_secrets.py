"""make-secrets.sh: what it makes, and what it keeps when it runs again."""

from __future__ import annotations

import contextlib
import ssl
import time
from pathlib import Path

import pytest
from helpers.made_secrets import MadeSecrets
from helpers.needs import needs

from rgpu_common.command import main
from rgpu_server.identity.access_tokens import read_access_tokens
from rgpu_server.identity.certificate_files import end_of

pytestmark = needs("openssl")

ALL = {
    "rgpu-tokens/tokens.toml", "rgpu-tokens/nodes.token",
    "rgpu-tls/tls.crt", "rgpu-tls/tls.key", "rgpu-tls/ca.crt",
    "rgpu-tls-manager/tls.crt", "rgpu-tls-manager/tls.key", "rgpu-tls-manager/ca.crt",
    "rgpu-tls-authority/tls.crt", "rgpu-tls-authority/tls.key",
}  # fmt: skip
DAY = 86400


@pytest.fixture
def secrets(tmp_path: Path) -> MadeSecrets:
    return MadeSecrets(tmp_path)


def without_types(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: text for name, text in files.items() if not name.endswith(".type")}


def handshake(secrets: MadeSecrets, name: str, host: str) -> None:
    """Does a TLS handshake in memory; ssl.SSLError if a client of this host refuses."""
    folder = secrets.folder / name
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    there, here = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(here, there, server_hostname=host),
        server.wrap_bio(there, here, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()


def test_it_makes_all_that_the_manifests_name(secrets: MadeSecrets) -> None:
    secrets.make()
    files = secrets.files()
    assert set(without_types(files)) == ALL
    assert {name: files[name] for name in files if name.endswith(".type")} == {
        "rgpu-tokens/.type": b"Opaque in rgpu-system",
        "rgpu-tls/.type": b"kubernetes.io/tls in rgpu-system",
        "rgpu-tls-manager/.type": b"kubernetes.io/tls in rgpu-system",
        "rgpu-tls-authority/.type": b"kubernetes.io/tls in rgpu-system",
    }
    handshake(secrets, "rgpu-tls", "rgpu-gpu-node")
    for host in ("rgpu-manager.rgpu-system", "localhost", "127.0.0.1"):
        handshake(secrets, "rgpu-tls-manager", host)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(secrets, "rgpu-tls", "rgpu-manager.rgpu-system")


def test_what_is_there_stays(secrets: MadeSecrets) -> None:
    secrets.make()
    tokens = secrets.folder / "rgpu-tokens" / "tokens.toml"
    file = str(secrets.folder.parent / "team.token")
    assert main(["token", "new", "team", "--file", file, "--tokens", str(tokens)]) == 0
    before = secrets.files()
    secrets.make()
    assert secrets.files() == before
    assert [row.tenant for row in read_access_tokens(tokens)] == ["nodes", "team"]


def test_a_certificate_near_its_end_is_made_anew(secrets: MadeSecrets) -> None:
    secrets.make()
    before = without_types(secrets.files())
    folder = secrets.folder.parent / "pki"
    folder.mkdir()
    for key, file in (("tls.crt", "ca.pem"), ("tls.key", "ca.key")):
        (folder / file).write_bytes(before[f"rgpu-tls-authority/{key}"])
    words = ("--server", "old", "--host", "rgpu-gpu-node", "--days", "29")
    assert main(["tls", "init", str(folder), *words]) == 0
    for key, file in (("tls.crt", "old.pem"), ("tls.key", "old.key")):
        (secrets.folder / "rgpu-tls" / key).write_bytes((folder / file).read_bytes())
    secrets.make()
    after = without_types(secrets.files())
    assert after["rgpu-tls/tls.crt"] != (folder / "old.pem").read_bytes()
    assert end_of(after["rgpu-tls/tls.crt"]) > time.time() + 300 * DAY
    renewed = ("rgpu-tls/tls.crt", "rgpu-tls/tls.key")
    assert {k: v for k, v in after.items() if k not in renewed} == {
        k: v for k, v in before.items() if k not in renewed
    }
    handshake(secrets, "rgpu-tls", "rgpu-gpu-node")


def test_certificates_of_others_are_left_alone(secrets: MadeSecrets) -> None:
    secrets.make("gpus", "mine", "none")
    assert set(without_types(secrets.files())) == {"mine/tokens.toml", "mine/nodes.token"}
    theirs = secrets.folder / "rgpu-tls"
    theirs.mkdir()
    (theirs / "tls.crt").write_text("of cert-manager")
    done = secrets.run("gpus", "mine")
    assert done.returncode == 1
    assert done.stdout == ""
    assert "leave certificates to who makes them" in done.stderr
    secrets.make("gpus", "mine", "own")
    assert "own-manager/tls.crt" in secrets.files()
    handshake(secrets, "own-manager", "rgpu-manager.gpus")


def test_nothing_is_made_if_the_cluster_does_not_answer(secrets: MadeSecrets) -> None:
    done = secrets.run(UNREACHABLE="1")
    assert done.returncode != 0
    assert done.stdout == ""
