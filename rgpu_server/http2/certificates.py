"""Certificates that are read again when their files change."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass

from rgpu_common.errors import ConfigError

log = logging.getLogger("rgpu.tunnel")


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of files in PEM; client_ca: "" for none.  required: of clients too."""

    certificate: str
    key: str
    client_ca: str
    required: bool

    def age(self) -> tuple[int, ...]:
        """When they were last written; OSError."""
        named = [path for path in (self.certificate, self.key, self.client_ca) if path]
        return tuple(os.stat(path).st_mtime_ns for path in named)

    def read(self) -> ssl.SSLContext:
        """Reads them; OSError, ssl.SSLError among them."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.set_alpn_protocols(["h2"])
        # A key with a password is one that cannot be read; nobody is there to be asked.
        context.load_cert_chain(self.certificate, self.key, password=lambda: "")
        if self.client_ca:
            context.load_verify_locations(self.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        if self.required:
            context.verify_mode = ssl.CERT_REQUIRED
        return context


class Certificates:
    """Raises ConfigError: a file cannot be read, or is none."""

    def __init__(self, files: Files) -> None:
        self._files = files
        try:
            self._age = files.age()
            self._context = files.read()
        except ssl.SSLError as error:
            raise ConfigError(
                f"{files.certificate} and {files.key} are no certificate and its key "
                f"({error.reason})"
            ) from None
        except OSError as error:
            raise ConfigError(f"{error.filename} cannot be read ({error.strerror})") from None

    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        try:
            now = self._files.age()
            if now != self._age:
                self._age, self._context = now, self._files.read()
                log.info("the certificates have been read again")
        except OSError as error:
            log.error("the old certificates are kept: %s", error)
        return self._context
