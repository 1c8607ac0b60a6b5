"""Certificates for tests, made once per run: an authority, a server, clients, and bad ones."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from rgpu_server.identity.tls_cli import Authority

HOSTS = ["localhost", "127.0.0.1", "::1"]


@functools.lru_cache(maxsize=1)
def folder() -> Path:
    """ca, server, alice, bob; expired-server, expired-alice; elsewhere (a server of another name);
    stranger/: another authority with a server and alice of its own.
    """
    path = Path(tempfile.mkdtemp(prefix="rgpu-pki-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    authority = Authority(path)
    authority.make()
    authority.server(HOSTS)
    authority.server(["gpu.example"], "elsewhere")
    for tenant in ("alice", "bob"):
        authority.client(tenant)
    _expire(path, "server", "subjectAltName=DNS:localhost,IP:127.0.0.1")
    _expire(path, "alice", "extendedKeyUsage=clientAuth")
    (path / "stranger").mkdir()
    stranger = Authority(path / "stranger")
    stranger.make("stranger")
    stranger.server(HOSTS)
    stranger.client("alice")
    return path


def _expire(path: Path, name: str, extension: str) -> None:
    """Makes expired-NAME: a certificate of the same key that ended yesterday."""
    request = ["req", "-new", "-config", os.devnull, "-key", f"{name}.key", "-subj", f"/CN={name}"]
    sign = ["x509", "-req", "-CA", "ca.pem", "-CAkey", "ca.key", "-set_serial", "7", "-days=-1"]
    (path / "extensions").write_text(extension + "\n")
    made = ["-extfile", "extensions", "-out", f"expired-{name}.pem"]
    for words in ([*request, "-out", "request"], [*sign, "-in", "request", *made]):
        subprocess.run(["openssl", *words], cwd=path, check=True, capture_output=True)
    shutil.copy(path / f"{name}.key", path / f"expired-{name}.key")


def config(server: str = "server", more: str = "") -> str:
    """The text of a server's configuration."""
    path = folder()
    return (
        f'[tls]\ncertificate = "{path}/{server}.pem"\nkey = "{path}/{server}.key"\n'
        f'client_ca = "{path}/ca.pem"\n{more}\n'
    )


def client(certificate: str = "", ca: str = "ca") -> dict[str, str]:
    """The variables of a client."""
    path = folder()
    variables = {"RGPU_TLS_CA": f"{path}/{ca}.pem"} if ca else {}
    if certificate:
        variables["RGPU_TLS_CERT"] = f"{path}/{certificate}.pem"
        variables["RGPU_TLS_KEY"] = f"{path}/{certificate}.key"
    return variables
