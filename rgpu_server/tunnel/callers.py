"""Who calls: where from, and whom their certificate names."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.wire.preface import Preface
from rgpu_server.identity.tokens import check_tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from grpc.aio import ServicerContext as Context

log = logging.getLogger("rgpu.tunnel")

TRANSPORT = "grpc"


class Callers:
    """tenant_uri: the tenant is what follows this in the only such URI of a certificate; None: it
    is the common name.
    """

    def __init__(self, tenant_uri: str | None) -> None:
        self._tenant_uri = tenant_uri

    def preface(self, context: Context) -> Preface:
        """Returns what the daemon is told of a call, whose certificate may name nobody."""
        facts = context.auth_context() or {}
        where = where_from(context.peer())
        if not facts.get("x509_pem_cert"):
            return Preface(TRANSPORT, where)
        try:
            tenant = self._tenant(facts)
        except UsageError as error:
            log.info("%s: %s", where, error)
            return Preface(TRANSPORT, where)
        return Preface(TRANSPORT, where, tenant, authenticated=True)

    def _tenant(self, facts: Mapping[str, Sequence[bytes]]) -> str:
        """UsageError with a sentence."""
        if self._tenant_uri is None:
            names = facts.get("x509_common_name", ())
        else:
            uris = facts.get("x509_subject_alternative_name", ())
            prefix = self._tenant_uri.encode()
            names = [uri.removeprefix(prefix) for uri in uris if uri.startswith(prefix)]
        if len(names) != 1:
            raise UsageError("the certificate names no tenant, or several")
        tenant = names[0].decode(errors="replace")
        check_tenant(tenant)
        return tenant


def where_from(peer: str) -> str:
    """`peer` as gRPC writes it: "ipv4:192.0.2.7:5123", "ipv6:%5B2001:db8::1%5D:5123"."""
    scheme, _, where = peer.partition(":")
    where = where.replace("%5B", "[").replace("%5D", "]") if scheme == "ipv6" else where
    return where if scheme in ("ipv4", "ipv6") else "unknown"


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of files in PEM; client_ca: "" for none."""

    certificate: str
    key: str
    client_ca: str

    def age(self) -> tuple[int, ...]:
        """When they were last written; OSError."""
        named = [path for path in (self.certificate, self.key, self.client_ca) if path]
        return tuple(os.stat(path).st_mtime_ns for path in named)

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Reads them; OSError."""
        pair = (_content(self.key), _content(self.certificate))
        authority = _content(self.client_ca) if self.client_ca else None
        return grpc.ssl_server_certificate_configuration([pair], authority)


def credentials(files: Files, required: bool) -> grpc.ServerCredentials:
    """Returns what TLS needs; files that change are read again.  required: of clients too.

    Raises:
        ConfigError: a file cannot be read.
    """
    try:
        first, age = files.read(), files.age()
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be read ({error.strerror})") from None
    return grpc.dynamic_ssl_server_credentials(first, _fetcher(files, age), required)


def _fetcher(
    files: Files, age: tuple[int, ...]
) -> Callable[[], grpc.ServerCertificateConfiguration | None]:
    known = age

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        """Asked before each handshake, in a thread of gRPC's; None: nothing has changed."""
        nonlocal known
        try:
            now = files.age()
            if now == known:
                return None
            known, fresh = now, files.read()
        except OSError as error:
            log.error("the old certificates are kept: %s", error)
            return None
        log.info("the certificates have been read again")
        return fresh

    return fetch


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
