"""Certificates for tests, made once in each run: an authority, a server, clients, and
invalid ones.
"""

from __future__ import annotations

import atexit
import functools
import ipaddress
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

HOSTS = ["localhost", "127.0.0.1", "::1"]
SERVER = ExtendedKeyUsageOID.SERVER_AUTH
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
_DAY = timedelta(days=1)


@functools.lru_cache(maxsize=1)
def folder() -> Path:
    """Returns the folder with the certificates:

    - ca, server, alice, bob;
    - expired-server, expired-alice;
    - elsewhere: a server of another name;
    - as-server-alice, as-client-server: made for the use of the other end;
    - nul, newline, two-names: their names are no tenant's;
    - stranger/: another authority with its own server and alice.

    They are as `rgpu tls init` makes them, but need no program `openssl`.
    """
    path = Path(tempfile.mkdtemp(prefix="rgpu-pki-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    authority = _Authority.made(path, "rgpu try-out")
    server = authority.server(HOSTS, "server")
    authority.server(["gpu.example"], "elsewhere")
    alice = authority.client("alice")
    authority.client("bob")
    authority.sign("expired-server", server, ["server"], SERVER, _hosts(HOSTS), days=-1)
    authority.sign("as-client-server", server, ["server"], CLIENT, _hosts(HOSTS))
    authority.sign("expired-alice", alice, ["alice"], CLIENT, days=-1)
    authority.sign("as-server-alice", alice, ["alice"], SERVER)
    authority.sign("two-names", alice, ["alice", "bob"], CLIENT)
    authority.sign("nul", alice, ["alice\0bob"], CLIENT)
    authority.sign("newline", alice, ["alice\nbob"], CLIENT)
    (path / "stranger").mkdir()
    stranger = _Authority.made(path / "stranger", "stranger")
    stranger.server(HOSTS, "server")
    stranger.client("alice")
    return path


def write_key(file: Path, key: ec.EllipticCurvePrivateKey, password: bytes = b"") -> None:
    """Writes a key that its owner alone may read. password: encrypts it."""
    locked = (
        serialization.BestAvailableEncryption(password)
        if password
        else serialization.NoEncryption()
    )
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked)
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
        opened.write(text)


@dataclass(frozen=True)
class _Authority:
    """A folder with ca.pem and ca.key, which sign the other certificates in it."""

    folder: Path
    name: x509.Name
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def made(cls, folder: Path, name: str) -> _Authority:
        authority = cls(folder, _name([name]), _new_key(folder, "ca"))
        usage = _usage(key_cert_sign=True, crl_sign=True)
        more = [(x509.BasicConstraints(ca=True, path_length=None), True), (usage, True)]
        authority._write("ca", authority.key, authority.name, more, 365)
        return authority

    def server(self, hosts: Sequence[str], file: str) -> ec.EllipticCurvePrivateKey:
        """Creates FILE.pem and FILE.key for a server that clients reach by these names."""
        key = _new_key(self.folder, file)
        self.sign(file, key, hosts[:1], SERVER, _hosts(hosts), copy=False)
        return key

    def client(self, tenant: str) -> ec.EllipticCurvePrivateKey:
        """Creates TENANT.pem and TENANT.key for a tenant's clients."""
        key = _new_key(self.folder, tenant)
        names = [x509.UniformResourceIdentifier(f"rgpu://tenant/{tenant}")]
        self.sign(tenant, key, [tenant], CLIENT, names, copy=False)
        return key

    def sign(
        self, file: str, key: ec.EllipticCurvePrivateKey, names: Sequence[str], use: ObjectIdentifier,
        others: Sequence[x509.GeneralName] = (), days: int = 30, copy: bool = True,
    ) -> None:  # fmt: skip
        """Creates FILE.pem for a key. names: its common names. others: its alternative names. days:
        until it expires. copy: writes FILE.key, too.
        """
        more: list[tuple[x509.ExtensionType, bool]] = [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(digital_signature=True), True),
            (x509.ExtendedKeyUsage([use]), False),
        ]
        if others:
            more.append((x509.SubjectAlternativeName(others), False))
        self._write(file, key, _name(names), more, days)
        if copy:
            write_key(self.folder / f"{file}.key", key)

    def _write(
        self, file: str, key: ec.EllipticCurvePrivateKey, subject: x509.Name,
        extensions: Sequence[tuple[x509.ExtensionType, bool]], days: int,
    ) -> None:  # fmt: skip
        now = datetime.now(timezone.utc)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + days * _DAY) - _DAY)
            .not_valid_after(now + days * _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False
            )
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        signed = builder.sign(self.key, hashes.SHA256())
        (self.folder / f"{file}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _new_key(folder: Path, file: str) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(folder / f"{file}.key", key)
    return key


def _name(names: Sequence[str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name) for name in names])


def _hosts(names: Sequence[str]) -> list[x509.GeneralName]:
    """Returns the alternative names of a server."""
    return [_host(name) for name in names]


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(**allowed: bool) -> x509.KeyUsage:
    """Returns what a key may be used for: these, and nothing else."""
    known = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
        "key_agreement", "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: allowed.get(name, False) for name in known})


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


class Mounted:
    """A folder with server.pem and server.key, whose files change together as those of a mounted
    Secret do: a symbolic link is replaced.
    """

    def __init__(self, folder: Path, certificate: str) -> None:
        self._folder = folder
        self._count = 0
        self.put(certificate)
        for kind in ("pem", "key"):
            (folder / f"server.{kind}").symlink_to(f"..data/server.{kind}")
        self.certificate, self.key = folder / "server.pem", folder / "server.key"

    def put(self, certificate: str) -> None:
        """Replaces the files by a certificate of `folder` and its key."""
        self._count += 1
        new = self._folder / f"..{self._count}"
        new.mkdir()
        for kind in ("pem", "key"):
            (new / f"server.{kind}").write_bytes((folder() / f"{certificate}.{kind}").read_bytes())
        link = self._folder / "..new"
        link.symlink_to(new.name)
        link.replace(self._folder / "..data")

    def options(self) -> tuple[str, ...]:
        """Returns the options of a server with this certificate."""
        return "--tls-cert", str(self.certificate), "--tls-key", str(self.key)
