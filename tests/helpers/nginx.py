"""A real nginx with the configuration in `deploy/nginx`."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from typing_extensions import Self

from helpers import pki
from helpers.ends import stopped
from helpers.needs import program
from helpers.ports import free_port
from helpers.telling import Telling
from helpers.waiting import wait_until

CONFIG = Path(__file__).resolve().parents[2] / "deploy" / "nginx" / "rgpu.conf"
_FRAME = """
pid {folder}/pid;
error_log {folder}/error.log;
worker_processes 2;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/rgpu.conf;
}}
"""


class Nginx(Telling):
    """`with Nginx(folder, "grpc:127.0.0.1:7701") as nginx:` serves `nginx.address` over TLS.

    seconds: how long the proxy keeps an idle connection. settings: replace or add lines of the
    configuration for a target on `grpcs:`.
    """

    def __init__(
        self,
        folder: Path,
        target: str,
        seconds: int = 60,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        certificates = pki.folder()
        self.ca = str(certificates / "ca.pem")
        self._port = free_port()
        self.address = f"grpcs:127.0.0.1:{self._port}"
        text = CONFIG.read_text()
        for old, new in (
            ("listen 8443", f"listen 127.0.0.1:{self._port}"),
            ("/etc/nginx/rgpu.crt", f"{certificates}/server.pem"),
            ("/etc/nginx/rgpu.key", f"{certificates}/server.key"),
            ("grpc://127.0.0.1:7701", target.replace(":", "://", 1)),
        ):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        if target.startswith("grpcs:"):
            text = _over_tls(text, {"grpc_ssl_trusted_certificate": self.ca,
                                    "grpc_ssl_name": "localhost", **settings})  # fmt: skip
        (folder / "rgpu.conf").write_text(text.replace(" 60s;", f" {seconds}s;"))
        (folder / "nginx.conf").write_text(_FRAME.format(folder=folder))

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self) -> None:
        """Starts nginx; returns when it listens."""
        self.process = subprocess.Popen(
            [
                program("nginx"), "-p", str(self._folder), "-c", "nginx.conf",
                "-e", str(self._folder / "error.log"), "-g", f"daemon off; {_user()}",
            ],
            stdin=subprocess.DEVNULL,
            cwd=self._folder,
        )  # fmt: skip
        wait_until(self._listens)

    def stop(self) -> None:
        """Ends nginx at once, with all its connections."""
        stopped(self.process)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0

    def close(self) -> None:
        """As `stop`."""
        self.stop()

    def told(self) -> str:
        return (self._folder / "error.log").read_text()


def _over_tls(text: str, settings: Mapping[str, str]) -> str:
    """Returns the configuration with its lines for a `grpcs:` target in use, and with these values;
    "" removes a line.
    """
    text = re.sub(r"# (grpc_ssl_\w+)", r"\1", text)
    for name, value in settings.items():
        line, count = f"{name} {value};" if value else "", 0
        text, count = re.subn(rf"\b{name} [^;]*;", line, text)
        if not count:
            text = text.replace("grpc_read_timeout", f"{line}\n        grpc_read_timeout")
    return text


def _user() -> str:
    """Returns the `user` line that root needs: other workers could not read the test's folder."""
    return "user root;" if os.geteuid() == 0 else ""
