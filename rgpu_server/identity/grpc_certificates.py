"""The certificate of a gRPC server, taken anew when its files change."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from rgpu_common.errors import ConfigError
from rgpu_server.identity.certificate_files import CertificateFiles

if TYPE_CHECKING:
    from rgpu_server.identity.settings import Tls

log = logging.getLogger("rgpu.tls")


def served_certificates(tls: Tls) -> grpc.ServerCredentials:
    """Returns credentials that read the files again when a client connects and they have changed.

    Raises:
        ConfigError: the files cannot be used.
    """
    tls.check()
    source = _Source(tls)
    return grpc.dynamic_ssl_server_credentials(
        _read(tls), source.newer, require_client_authentication=tls.require_client_cert
    )


class _Source:
    """gRPC asks `newer` for each connection, in one of its own threads."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._files = CertificateFiles(tls)

    def newer(self) -> grpc.ServerCertificateConfiguration | None:
        """Returns the certificate if it is another one than was used last; None: it is not."""
        self._files.say_end()
        if not self._files.changed():
            return None
        try:
            self._tls.check()
            found = _read(self._tls)
        except (ConfigError, OSError) as error:
            log.error("the certificate that was read last stays in use: %s", error)
            return None
        log.info("a new certificate is in use: %s", self._tls.certificate)
        return found


def _read(tls: Tls) -> grpc.ServerCertificateConfiguration:
    pair = Path(tls.key).read_bytes(), Path(tls.certificate).read_bytes()
    authorities = Path(tls.client_ca).read_bytes() if tls.client_ca else None
    return grpc.ssl_server_certificate_configuration([pair], authorities)
