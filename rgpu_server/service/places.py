"""The API's connections: who is at the other end of each, and which one goes for a new one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_common.crowds import of_largest_crowd
from rgpu_server.service.callers import is_own_uid

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.service.callers import Caller

# Places beyond the limit for the server's own user, so that it can always revoke leases.
_OWN_PLACES = 8


@dataclass(slots=True)
class _Guest:
    """A connection. leave: closes it. known: whose call on it was admitted, or ""."""

    caller: Caller
    leave: Callable[[], object]
    known: str = ""


class Places:
    """Places for `count` API connections, keyed by the address that the API sees."""

    def __init__(self, count: int) -> None:
        self._count = count
        # The longest present first.
        self._guests: dict[str, _Guest] = {}

    def take(self, address: str, caller: Caller, leave: Callable[[], object]) -> bool:
        """Gives a connection a place; returns False if there is none.

        If all places are taken, a connection without an admitted call is closed: one of the origin
        that has the most of those. Legitimate clients make a call at once. If all have made one, a
        connection of a tenant that holds more than half of all places is closed. No smaller tenant
        gives way: the newcomer may be anybody, and would cost others their connections.
        """
        own = caller.uid is not None and is_own_uid(caller.uid)
        if len(self._guests) >= self._count + _OWN_PLACES * own:
            leaves = self._stranger(caller) or self._hog()
            if leaves is None:
                return False
            self._guests.pop(leaves).leave()
        self._guests[address] = _Guest(caller, leave)
        return True

    def _stranger(self, newcomer: Caller) -> str | None:
        strangers = ((a, g.caller.origin) for a, g in self._guests.items() if not g.known)
        return of_largest_crowd(strangers, newcomer.origin)

    def _hog(self) -> str | None:
        who, held = Counter(g.known for g in self._guests.values()).most_common(1)[0]
        if held <= max(self._count // 2, 1):
            return None
        return next(address for address, guest in self._guests.items() if guest.known == who)

    def free(self, address: str) -> None:
        """Frees the place of a connection that has ended; it may have been freed already."""
        self._guests.pop(address, None)

    def caller(self, address: str) -> Caller | None:
        """Returns the caller behind a connection, or None."""
        guest = self._guests.get(address)
        return None if guest is None else guest.caller

    def admitted(self, address: str, tenant: str | None) -> None:
        """Notes that a call of this tenant (None: unnamed) was admitted; the connection stays."""
        guest = self._guests.get(address)
        if guest is not None:
            guest.known = f"tenant {tenant}" if tenant is not None else guest.caller.origin

    def knows(self, address: str) -> bool:
        """Returns True if a call of this connection has been admitted."""
        guest = self._guests.get(address)
        return guest is not None and guest.known != ""
