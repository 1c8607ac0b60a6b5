"""Credentials of Kubernetes claims: tokens that open sessions in the leases of one claim.

A token is `rgpuc1.`, the claim's facts in JSON and base64, a dot, and the HMAC-SHA256 of all before
it under the key of the GPU node. Whoever has the key checks a token without asking anybody.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.clusters import is_request_id
from rgpu_common.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "rgpuc1."
KEY_BYTES = 32
_MOST_TOKEN = 1024
_MOST_FILE = 4096


@dataclass(frozen=True, slots=True)
class ClaimToken:
    """claim: the UID of the claim, which is the id of its request. expires: in seconds since
    1970.
    """

    claim: str
    tenant: str
    expires: float


def node_key(cluster_key: bytes, node: str) -> bytes:
    """Returns the key of a GPU node: 32 bytes that tell nothing of the cluster's key."""
    return hmac.new(cluster_key, b"node:" + node.encode(), hashlib.sha256).digest()


def make(key: bytes, claim: str, tenant: str, expires: float) -> str:
    """Returns a token. key: that of the GPU node."""
    facts = json.dumps({"c": claim, "t": tenant, "e": expires}, separators=(",", ":"))
    said = PREFIX + _text(facts.encode())
    return f"{said}.{_text(_proof(key, said))}"


def looks_like(token: str) -> bool:
    """Returns whether a text is meant as such a token."""
    return token.startswith(PREFIX)


def read(key: bytes, token: str, now: float) -> ClaimToken | None:
    """Returns what a token says; None if it is not valid now."""
    said, dot, proof = token.rpartition(".")
    if not dot or len(token) > _MOST_TOKEN or not looks_like(said):
        return None
    try:
        given = _bytes(proof)
        if not hmac.compare_digest(given, _proof(key, said)):
            return None
        facts = json.loads(_bytes(said.removeprefix(PREFIX)))
        found = ClaimToken(str(facts["c"]), str(facts["t"]), float(facts["e"]))
    except (ValueError, KeyError, TypeError):
        return None
    return found if is_request_id(found.claim) and now < found.expires else None


def new_key() -> bytes:
    """Returns a random key for a cluster."""
    return secrets.token_bytes(KEY_BYTES)


def key_in(path: Path) -> bytes:
    """Returns the key in a file: 32 bytes in base64.

    Raises:
        ConfigError: the file cannot be read, or holds no key.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_FILE)
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from None
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{path} is no key file: it holds {KEY_BYTES} random bytes in base64; make one with "
            f"`head -c {KEY_BYTES} /dev/urandom | base64`"
        )
    return key


def _proof(key: bytes, said: str) -> bytes:
    return hmac.new(key, said.encode(), hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
