"""The authority of the servers' certificates, which pods are told with their server."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rgpu_cluster.kubernetes.names import AUTHORITY
from rgpu_common.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("rgpu.kubernetes")

# All annotations of a pod together have 256 KiB.
MOST_BYTES = 32 << 10
_MARK = "-----BEGIN CERTIFICATE-----"
_NO_SECRETS = "PRIVATE KEY"


def read_authority(file: Path) -> str:
    """Returns the certificates of a file.

    Raises:
        ConfigError: it has none, or too many, or a secret beside them.
    """
    try:
        text = file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"RGPU_TLS_CA: {file} cannot be read: {why}") from None
    if _MARK not in text or _NO_SECRETS in text or len(text) > MOST_BYTES:
        raise ConfigError(
            f"RGPU_TLS_CA: {file} is not for pods: name a file in PEM of at most "
            f"{MOST_BYTES >> 10} KiB with the certificates of authorities, and no key in it"
        )
    return text


def with_authority(
    said: Mapping[str, str], environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Returns the annotations that tell a pod its server, with the authority of RGPU_TLS_CA. The
    file is read each time, because another one may take its place.
    """
    file = environment.get("RGPU_TLS_CA", "")
    if not said or not file:
        return dict(said)
    try:
        return {**said, AUTHORITY: read_authority(Path(file))}
    except ConfigError as error:
        # Its programs say that they do not trust their server.
        log.error("a pod is told its server without the authority: %s", error)
        return dict(said)
