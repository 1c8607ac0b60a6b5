"""The files of a server's certificate: whether they have changed, and when the certificate ends."""

from __future__ import annotations

import logging
import os
import re
import ssl
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.identity.settings import Tls

log = logging.getLogger("rgpu.tls")

# The log says so long before that a certificate ends.
_SOON_SECONDS = 14 * 86400.0
# How often it says so.
_AGAIN_SECONDS = 86400.0
_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
# Tags of DER.
_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


class CertificateFiles:
    """Call `changed` and `say_end` now and then."""

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen = _stamp(tls)
        self._told = -_AGAIN_SECONDS

    def changed(self) -> bool:
        """Returns whether other files are there than at the last call. While one of them is
        missing, they count as the same.
        """
        now = _stamp(self._tls)
        if now in ((), self._seen):
            return False
        self._seen = now
        self._told = -_AGAIN_SECONDS
        return True

    def say_end(self) -> None:
        """Says in the log, once a day, that the certificate has ended or will soon."""
        if time.monotonic() - self._told < _AGAIN_SECONDS:
            return
        self._told = time.monotonic()
        sentence = end_sentence(self._tls.certificate, time.time())
        if sentence:
            log.warning("%s", sentence)


def end_sentence(certificate: str, now: float) -> str:
    """Returns that a certificate has ended, or ends soon, and what to do; "" if neither."""
    try:
        ends = end_of(Path(certificate).read_bytes())
    except (OSError, ValueError):
        return ""  # who uses the file says what is wrong with it
    left = ends - now
    if left > _SOON_SECONDS:
        return ""
    when = datetime.fromtimestamp(ends, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    what = (
        "has ended, and clients refuse it" if left <= 0 else "ends soon, and clients refuse it then"
    )
    return (
        f"the certificate {certificate} {what} ({when}): put a new one and its key into the files, "
        "which are read again (on Kubernetes deploy/kubernetes/make-secrets.sh makes one)"
    )


def end_of(pem: bytes) -> float:
    """Returns when the first certificate of a PEM file ends, in seconds since 1970.

    Raises:
        ValueError: there is none that can be read.
    """
    block = _BLOCK.search(pem)
    if block is None:
        raise ValueError("no certificate")
    der = ssl.PEM_cert_to_DER_cert(block[0].decode("ascii"))
    try:
        return _not_after(der)
    except IndexError:
        raise ValueError("a certificate that ends too early") from None


def _not_after(der: bytes) -> float:
    """Reads the fields before the end: version, serial number, signature's algorithm, issuer."""
    _, certificate, _ = _element(der, 0)
    _, at, _ = _element(der, certificate)
    tag, _, end = _element(der, at)
    if tag == _VERSION:
        at = end
    for _ in range(3):
        _, _, at = _element(der, at)
    tag, validity, _ = _element(der, at)
    _, _, at = _element(der, validity)
    kind, begin, end = _element(der, at)
    if tag != _SEQUENCE:
        raise ValueError("no certificate")
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    found = datetime.strptime(der[begin:end].decode("ascii"), form)
    return found.replace(tzinfo=timezone.utc).timestamp()


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Returns the tag of the element at a place, where its content begins, and where it ends."""
    tag, length = der[at], der[at + 1]
    at += 2
    if length & 0x80:
        size = length & 0x7F
        length, at = int.from_bytes(der[at : at + size], "big"), at + size
    return tag, at, at + length


def _stamp(tls: Tls) -> tuple[tuple[int, int, int], ...]:
    """Returns what changes with the files. Kubernetes replaces the folder behind a symbolic link,
    so the file behind the path is another one then. (): they are not all there.
    """
    try:
        facts = [os.stat(path) for path in tls.files()]
    except OSError:
        return ()
    return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in facts)
