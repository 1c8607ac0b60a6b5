"""Certificates for tests, made once in each run: an authority, a server, clients, and
invalid ones.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path

from rgpu_server.identity.tls_cli import Authority

HOSTS = ["localhost", "127.0.0.1", "::1"]


@functools.lru_cache(maxsize=1)
def folder() -> Path:
    """Returns the folder with the certificates:

    - ca, server, alice, bob;
    - expired-server, expired-alice;
    - elsewhere: a server of another name;
    - as-server-alice, as-client-server: made for the use of the other end;
    - nul, newline, two-names: their names are no tenant's;
    - stranger/: another authority with its own server and alice.
    """
    path = Path(tempfile.mkdtemp(prefix="rgpu-pki-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    authority = Authority(path)
    authority.make()
    authority.server(HOSTS)
    authority.server(["gpu.example"], "elsewhere")
    for tenant in ("alice", "bob"):
        authority.client(tenant)
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    _sign(path, "server", "expired-server", "/CN=server", names, days=-1)
    _sign(path, "alice", "expired-alice", "/CN=alice", "extendedKeyUsage=clientAuth", days=-1)
    _sign(path, "alice", "as-server-alice", "/CN=alice", "extendedKeyUsage=serverAuth")
    _sign(path, "server", "as-client-server", "/CN=server", f"{names}\nextendedKeyUsage=clientAuth")
    _sign(path, "alice", "two-names", "/CN=alice/CN=bob", "extendedKeyUsage=clientAuth")
    for name, byte in (("nul", 0), ("newline", 10)):
        _sign(path, "alice", name, "/CN=alice#bob", "extendedKeyUsage=clientAuth")
        _put(path, name, byte)
    (path / "stranger").mkdir()
    stranger = Authority(path / "stranger")
    stranger.make("stranger")
    stranger.server(HOSTS)
    stranger.client("alice")
    return path


def _sign(path: Path, key: str, name: str, subject: str, extensions: str, days: int = 30) -> None:
    """Makes the certificate `name` for the key of another certificate."""
    request = ["req", "-new", "-config", os.devnull, "-key", f"{key}.key", "-subj", subject]
    sign = ["x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "7"]
    (path / "extensions").write_text(extensions + "\n")
    made = [f"-days={days}", "-extfile", "extensions", "-out", f"{name}.pem"]
    for words in ([*request, "-out", "request"], [*sign, "-in", "request", *made]):
        _openssl(path, *words)
    shutil.copy(path / f"{key}.key", path / f"{name}.key")


def _put(path: Path, name: str, byte: int) -> None:
    """Replaces the `#` in a certificate's name by a byte that openssl would not write, and signs
    the certificate again.
    """
    whole = ssl.PEM_cert_to_DER_cert((path / f"{name}.pem").read_text())
    start = 4 if whole[1] == 0x82 else 3
    body = whole[start : start + 4 + int.from_bytes(whole[start + 2 : start + 4], "big")]
    assert body[1] == 0x82
    assert body.count(b"alice#bob") == 1
    body = body.replace(b"alice#bob", b"alice" + bytes([byte]) + b"bob")
    rest = whole[start + len(body) :]
    algorithm = rest[: 2 + rest[1]]
    (path / "body").write_bytes(body)
    signature = _openssl(path, "dgst", "-sha256", "-sign", "ca.key", "body")
    signed = body + algorithm + bytes([3, len(signature) + 1, 0]) + signature
    made = b"\x30\x82" + len(signed).to_bytes(2, "big") + signed
    (path / f"{name}.pem").write_text(ssl.DER_cert_to_PEM_cert(made))


def _openssl(path: Path, *words: str) -> bytes:
    return subprocess.run(["openssl", *words], cwd=path, check=True, capture_output=True).stdout


def config(server: str = "server", more: str = "") -> str:
    """Returns the text of a server's configuration."""
    path = folder()
    return (
        f'[tls]\ncertificate = "{path}/{server}.pem"\nkey = "{path}/{server}.key"\n'
        f'client_ca = "{path}/ca.pem"\n{more}\n'
    )


def client(certificate: str = "", ca: str = "ca") -> dict[str, str]:
    """Returns the variables of a client."""
    path = folder()
    variables = {"RGPU_TLS_CA": f"{path}/{ca}.pem"} if ca else {}
    if certificate:
        variables["RGPU_TLS_CERT"] = f"{path}/{certificate}.pem"
        variables["RGPU_TLS_KEY"] = f"{path}/{certificate}.key"
    return variables
