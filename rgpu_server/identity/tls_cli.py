"""`rgpu tls init`: creates certificates for trying out TLS, with the `openssl` program."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.command import OK, Command
from rgpu_common.errors import MissingPartError, RgpuError, UsageError
from rgpu_server.identity.access_tokens import check_tenant
from rgpu_server.identity.certificate_files import end_of

if TYPE_CHECKING:
    import argparse

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9*_.:-]{1,253}")
_ADDRESS = re.compile(r"[0-9.]+|[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*")
_MAX_DAYS = 3650
_DAY_SECONDS = 86400.0


class Authority(Struct, frozen=True):
    """A folder with ca.pem and ca.key, which sign the other certificates in it. days: how long
    those are valid.
    """

    folder: Path
    days: int = 365

    def make(self, name: str = "rgpu try-out") -> None:
        """Creates ca.pem and ca.key, which outlast certificates that are renewed; raises RgpuError
        if `openssl` fails.
        """
        self._openssl(
            "ca",
            f"/CN={name}",
            "basicConstraints=critical,CA:TRUE",
            "keyUsage=critical,keyCertSign,cRLSign",
            days=_MAX_DAYS,
        )

    def server(self, hosts: list[str], file: str = "server") -> None:
        """Creates FILE.pem and FILE.key for a server that clients reach by these names."""
        names = ",".join(f"{'IP' if _ADDRESS.fullmatch(h) else 'DNS'}:{h}" for h in hosts)
        self._openssl(
            file,
            f"/CN={hosts[0][:64]}",
            f"subjectAltName={names}",
            *_leaf("serverAuth"),
            signed=True,
        )

    def client(self, tenant: str, file: str = "", uri_prefix: str = "rgpu://tenant/") -> None:
        """Creates FILE.pem and FILE.key (default: TENANT.pem and .key) for a tenant's clients."""
        check_tenant(tenant)
        names = [f"subjectAltName=URI:{uri_prefix}{tenant}"] if _NAME.fullmatch(tenant) else []
        self._openssl(
            file or tenant, f"/CN={_escape(tenant)}", *names, *_leaf("clientAuth"), signed=True
        )

    def _openssl(
        self, file: str, subject: str, *extensions: str, signed: bool = False, days: int = 0
    ) -> None:
        program = shutil.which("openssl")
        if program is None:
            raise MissingPartError("certificates are created by the program `openssl`: install it")
        authority = ["-CA", "ca.pem", "-CAkey", "ca.key"] if signed else []
        # Written under other names first, so that existing files stay if `openssl` fails.
        made = {kind: self.folder / f".{file}.{kind}.new" for kind in ("key", "pem")}
        # -config: the machine's own configuration would add extensions.
        words = [
            program, "req", "-x509", "-config", os.devnull, "-newkey", "ec",
            "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-sha256",
            "-days", str(days or self.days), "-keyout", str(made["key"]),
            "-out", str(made["pem"]), "-subj", subject, "-utf8",
            *authority, *(word for e in extensions for word in ("-addext", e)),
        ]  # fmt: skip
        old = os.umask(0o077)
        try:
            done = subprocess.run(
                words, cwd=self.folder, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                check=False,
            )  # fmt: skip
        finally:
            os.umask(old)
        if done.returncode != 0:
            for path in made.values():
                path.unlink(missing_ok=True)
            last = done.stderr.strip().splitlines()[-1:] or ["it gives no reason"]
            raise RgpuError(f"`openssl` (3.0 or later) cannot make {file}.pem: {last[0]}")
        os.chmod(made["pem"], 0o644)
        for kind, path in made.items():
            os.replace(path, self.folder / f"{file}.{kind}")


def _leaf(use: str) -> tuple[str, ...]:
    return (
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature",
        f"extendedKeyUsage={use}",
    )


def _escape(text: str) -> str:
    return "".join("\\" + c if c in "/\\+=" else c for c in text)


def _configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    init = verbs.add_parser(
        "init", help="create an authority and certificates for a server and tenants, to try out TLS"
    )
    _add_certificates(init)
    init.add_argument(
        "--renew",
        type=int,
        default=0,
        metavar="DAYS",
        help="create the server's certificate anew only if it ends within so many days; --host "
        "then says what a certificate that is made is for",
    )
    init.add_argument(
        "--days",
        type=int,
        default=365,
        metavar="N",
        help="how long certificates are valid (default 365); the authority is valid for ten years",
    )


def _add_certificates(init: argparse.ArgumentParser) -> None:
    """Adds the options that say which certificates are made."""
    init.add_argument(
        "folder", type=Path, metavar="FOLDER", help="where to write; created if missing"
    )
    init.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        help="name or address by which clients reach the server; may be repeated, also in a later "
        "run, for a new certificate of the server (default: this machine's name, localhost, "
        "127.0.0.1 and ::1)",
    )
    init.add_argument(
        "--tenant",
        action="append",
        default=[],
        metavar="NAME",
        help="create NAME.pem and NAME.key for the tenant's clients; may be repeated, also in a "
        "later run",
    )
    init.add_argument(
        "--server",
        default="server",
        metavar="NAME",
        help="create NAME.pem and NAME.key for the server, in a later run for another server "
        "(default: server)",
    )


def _run(arguments: argparse.Namespace) -> int:
    hosts = arguments.host or [socket.gethostname(), "localhost", "127.0.0.1", "::1"]
    _check(hosts, arguments.server, arguments.tenant, arguments.days)
    folder: Path = arguments.folder.absolute()
    server = folder / f"{arguments.server}.pem"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise RgpuError(f"{folder} cannot be created: {error.strerror}") from None
    authority = Authority(folder, arguments.days)
    if not (folder / "ca.pem").exists():
        authority.make()
    _check_authority(folder / "ca.pem", arguments.renew)
    there = server.exists()
    if not there or (_ends(server, arguments.renew) if arguments.renew else arguments.host):
        authority.server(hosts, arguments.server)
        if there:
            print(f"{server.name} and its key are new: a running server reads them again")
    for tenant in arguments.tenant:
        authority.client(tenant)
    _explain(folder, server, arguments.tenant)
    return OK


def _ends(certificate: Path, days: int) -> bool:
    """Returns whether a certificate ends within so many days, or cannot be read."""
    try:
        return end_of(certificate.read_bytes()) < time.time() + days * _DAY_SECONDS
    except (OSError, ValueError):
        return True


def _check_authority(certificate: Path, days: int) -> None:
    """RgpuError if the authority ends so soon that what it signs would not be accepted."""
    if _ends(certificate, days):
        raise RgpuError(
            f"the authority {certificate} ends within {days} days, or cannot be read: move the "
            "folder away and make another authority; clients need its ca.pem before the servers "
            "use its certificates"
        )


def _check(hosts: list[str], server: str, tenants: list[str], days: int) -> None:
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise UsageError(f"{host!r} is not a host name or address")
    for name in (server, *tenants):
        taken = ("ca", ".", "..", *(() if name is server else ("server", server)))
        if not _NAME.fullmatch(name) or name in taken:
            raise UsageError(f"{name!r} cannot be the name of a file; use letters and digits")
    if not 1 <= days <= _MAX_DAYS:
        raise UsageError(f"--days must be 1 to {_MAX_DAYS}")


def _explain(folder: Path, server: Path, tenants: list[str]) -> None:
    config = folder / "rgpu.toml"
    if not config.exists():
        config.write_text(
            f'[tls]\ncertificate = "{server}"\nkey = "{server.with_suffix(".key")}"\n'
            f'client_ca = "{folder}/ca.pem"\n',
            encoding="utf-8",
        )
    print(f"server:  rgpu serve --config {config} --listen tls:HOST:PORT")
    print(f"client:  export RGPU_TLS_CA={folder}/ca.pem")
    for tenant in tenants:
        names = f"RGPU_TLS_CERT={folder}/{tenant}.pem RGPU_TLS_KEY={folder}/{tenant}.key"
        print(f"         export {names}   # tenant {tenant}")


tls = Command("tls", "create certificates to try out tls:", _configure, _run)
