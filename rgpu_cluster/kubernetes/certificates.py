"""The certificate of an HTTPS server, taken anew when its files change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from typing import TYPE_CHECKING

from rgpu_common.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("rgpu.kubernetes.web")

CHECK_SECONDS = 30.0


class Certificates:
    """`context` serves; `watch` keeps it up to date.

    client_ca: callers need a certificate of this authority. None: anybody who reaches the port.

    Raises:
        ConfigError: the files cannot be used; the sentence names them.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._files = certificate, key
        self.context = _context()
        if client_ca is not None:
            try:
                self.context.load_verify_locations(client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"{client_ca} is no authority's certificate: {error}") from None
            self.context.verify_mode = ssl.CERT_REQUIRED
        self._seen = self._stamp()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"{certificate} and {key} are no certificate and its key: {error}"
            ) from None

    async def watch(self, seconds: float = CHECK_SECONDS) -> None:
        """Looks at the files now and then, until it is cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self.refresh()

    def refresh(self) -> bool:
        """Takes the files if they have changed and are right; returns whether it did."""
        now = self._stamp()
        if now == self._seen or None in now:
            return False
        self._seen = now
        try:
            # A trial first: a context that fails midway would serve half of each.
            _context().load_cert_chain(*self._files)
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            log.warning("the new certificate is not used, the last one serves on: %s", error)
            return False
        log.info("a new certificate is in use")
        return True

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(_stamp(path) for path in self._files)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Returns what changes with a file. Kubernetes replaces the folder behind a symbolic link."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
