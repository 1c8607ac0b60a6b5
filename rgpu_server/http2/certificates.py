"""Certificates and keys of a gateway, which are replaced while it runs."""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rgpu_common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger("rgpu.tunnel")

_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Files:
    """Paths of files in PEM; client_ca: "" for none.  required: of clients too."""

    certificate: str
    key: str
    client_ca: str
    required: bool

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
        return self._context

    def renew(self, descriptors: Sequence[int]) -> None:
        """Takes certificates and key from open files, in the order certificate, key, clients' CA.

        This process may not open the files by their paths any more, and its user may not read the
        key.  What cannot be used leaves the old ones in place.
        """
        try:
            with contextlib.ExitStack() as stack:
                paths = [stack.enter_context(_copied(one)) for one in descriptors]
                authority = paths[2] if len(paths) > 2 else ""
                self._context = Files(paths[0], paths[1], authority, self._files.required).read()
        except OSError as error:
            log.error("the old certificates are kept: %s", error)
        else:
            log.info("the certificates have been read again")


@contextlib.contextmanager
def _copied(descriptor: int) -> Iterator[str]:
    """A path at which this process can read what an open file holds: OpenSSL wants paths."""
    with open(descriptor, "rb", closefd=False) as source:
        text = source.read(_MOST_BYTES)
    copy = os.memfd_create("rgpu-certificate")
    try:
        os.write(copy, text)
        yield f"/proc/self/fd/{copy}"
    finally:
        os.close(copy)
