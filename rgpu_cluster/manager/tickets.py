"""Tickets: what a client shows to a manager that was started again, to keep its place in line.

The manager keeps no file, so only its clients know afterwards how long they have waited. A client
that could simply say so would overtake whoever waited longer. So the manager signs how long the
client has waited, with a key that a manager started later derives again from a secret file. A
manager without such a file signs with a key of its own, and the next one knows none of its tickets.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

# A client in line gets a new ticket so often.
RENEW_SECONDS = 300.0
# A ticket counts for so long after it was signed: clients wait 900 s for a manager that is away.
# So nobody takes requests back and keeps their age for a later restart.
FRESH_SECONDS = RENEW_SECONDS + 900.0
# No wait counts for longer.
_LONGEST_SECONDS = 30 * 86400.0
# Which manager signed it; since when the request waits, and when it was signed: both in seconds
# since 1970.
_BODY = struct.Struct("!16sdd")


class Tickets:
    """Signs tickets, and reads those of the managers before this one. now: seconds since 1970."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)
        self._self = secrets.token_bytes(16)
        # Requests and tenants whose tickets have counted. Only requests that waited for an earlier
        # manager within the last `FRESH_SECONDS` come in here.
        self._counted: set[tuple[str, str]] = set()

    def sign(self, request: str, tenant: str, since: float, now: float) -> bytes:
        """Returns the ticket of a request that waits."""
        body = _BODY.pack(self._self, since, now)
        return body + self._seal(request, tenant, body)

    def waited(self, ticket: bytes, request: str, tenant: str, now: float) -> float:
        """Returns for how many seconds the request has waited; 0 if the ticket does not show that.

        A ticket of this manager shows nothing: a request in line here has its age already, and a
        request that has left the line begins anew. So a ticket of an earlier manager counts once.
        """
        body, seal = ticket[: _BODY.size], ticket[_BODY.size :]
        if not hmac.compare_digest(seal, self._seal(request, tenant, body)):
            return 0.0
        signer, since, signed = _BODY.unpack(body)
        if signer == self._self or now - signed > FRESH_SECONDS:
            return 0.0
        if (request, tenant) in self._counted:
            return 0.0
        self._counted.add((request, tenant))
        return float(min(max(now - since, 0.0), _LONGEST_SECONDS))

    def _seal(self, request: str, tenant: str, body: bytes) -> bytes:
        said = b"\0".join((b"rgpu place in line", request.encode(), tenant.encode(), body))
        return hmac.digest(self._key, said, "sha256")


def key_of(secret: bytes) -> bytes:
    """Returns a key that only those know who can read the secret file with these bytes."""
    return hashlib.sha256(b"rgpu tickets" + secret).digest()
