"""Why sessions have ended, for clients that come back to them or attach too late."""

from __future__ import annotations

import hmac
from collections import OrderedDict
from dataclasses import dataclass, field

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
    """Remembers the reasons of the last few hundred sessions that ended."""

    def __init__(self) -> None:
        self._ended: OrderedDict[int, _Ended] = OrderedDict()
        self._noted: dict[int, str] = {}

    def note(self, session: int, why: str) -> None:
        """Notes why a session is about to end: this goes before the reason of `add`."""
        self._noted[session] = why

    def add(self, session: int, secret: bytes, why: str) -> None:
        """Remembers that a session has ended."""
        self._ended[session] = _Ended(secret, self._noted.pop(session, why))
        while len(self._ended) > MAX_REMEMBERED:
            self._ended.popitem(last=False)

    def knows(self, session: int, secret: bytes) -> bool:
        """Returns True if this is the secret of a session that is remembered."""
        ended = self._ended.get(session)
        return ended is not None and hmac.compare_digest(ended.secret, secret)

    def sentence(self, session: int, secret: bytes) -> str:
        """Returns what a client that shows this secret is told."""
        why = self._ended[session].why if self.knows(session, secret) else ""
        return f"{ENDED}: {why}" if why else ENDED
