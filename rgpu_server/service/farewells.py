"""Why sessions have ended, for clients that come back to them or attach too late."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from rgpu_common.crowds import FairStore

# About 9 KiB each at most, usually 200 bytes.
MAX_REMEMBERED = 256
# The same without a reason, and for a wrong secret: a stranger does not learn which sessions there
# are.
ENDED = "the server has ended this session: its worker is gone, and the server's log says why"


@dataclass(frozen=True, slots=True)
class _Ended:
    secret: bytes = field(repr=False)
    why: str


class Farewells:
    """Remembers the reasons of the last few hundred sessions that ended. Beyond, those of the
    tenant with the most are forgotten, the oldest first.
    """

    def __init__(self) -> None:
        self._ended: FairStore[int, _Ended] = FairStore(MAX_REMEMBERED)
        self._noted: dict[int, str] = {}

    def note(self, session: int, why: str) -> None:
        """Notes why a session is about to end: this goes before the reason of `add`."""
        self._noted[session] = why

    def add(self, session: int, tenant: str, secret: bytes, why: str) -> None:
        """Remembers that a session of a tenant has ended."""
        self._ended.put(session, tenant, _Ended(secret, self._noted.pop(session, why)))

    def knows(self, session: int, secret: bytes) -> bool:
        """Returns True if this is the secret of a session that is remembered."""
        ended = self._ended.get(session)
        return ended is not None and hmac.compare_digest(ended.secret, secret)

    def sentence(self, session: int, secret: bytes) -> str:
        """Returns what a client that shows this secret is told."""
        ended = self._ended.get(session)
        why = ended.why if ended is not None and self.knows(session, secret) else ""
        return f"{ENDED}: {why}" if why else ENDED
