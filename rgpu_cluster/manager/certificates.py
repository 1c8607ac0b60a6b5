"""Which tenant a client's certificate names, by what gRPC says of it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rgpu_common.errors import UsageError
from rgpu_server.identity.access_tokens import check_tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# One attribute of a subject ("CN=alice,O=lab"), and a byte or a character that is escaped in it.
_ATTRIBUTE = re.compile(rb"(?:[^,+\\]|\\.)+", re.DOTALL)
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def tenant_of(shown: Mapping[str, Iterable[bytes]], uri_prefix: str) -> str:
    """Returns the tenant; "" without a certificate, or if its name is no tenant's.

    shown: the properties of the connection. uri_prefix: what precedes the tenant in a URI of the
    certificate; "": the tenant is its only common name.
    """
    names = _uris(shown, uri_prefix) if uri_prefix else _common_names(shown)
    if len(names) != 1:
        return ""
    try:
        tenant = names[0].decode()
        check_tenant(tenant)
    except (UnicodeDecodeError, UsageError):
        return ""
    return tenant


def _uris(shown: Mapping[str, Iterable[bytes]], uri_prefix: str) -> list[bytes]:
    prefix = uri_prefix.encode()
    return [one[len(prefix) :] for one in shown.get("peer_uri", ()) if one.startswith(prefix)]


def _common_names(shown: Mapping[str, Iterable[bytes]]) -> list[bytes]:
    """Reads the whole subject: gRPC's own common name ends at a NUL, and is one of several."""
    attributes = [a for one in shown.get("x509_subject", ()) for a in _ATTRIBUTE.findall(one)]
    values = [a.removeprefix(b"CN=") for a in attributes if a.startswith(b"CN=")]
    return [_ESCAPED.sub(_unescaped, value) for value in values]


def _unescaped(match: re.Match[bytes]) -> bytes:
    found = match[1]
    return bytes([int(found, 16)]) if len(found) == 2 else found
