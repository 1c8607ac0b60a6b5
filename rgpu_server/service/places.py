"""The API's connections: who is at the other end of each, and who makes room for whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_server.service.callers import is_own_uid
from rgpu_server.service.crowd import of_largest_crowd

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.service.callers import Caller

# Beyond the limit, for the server's own user: whoever else has taken all places can be revoked.
_OWN_PLACES = 8


@dataclass(slots=True)
class _Guest:
    """leave: ends the connection.  known: whose call of it has been let in, "": nobody's yet."""

    caller: Caller
    leave: Callable[[], object]
    known: str = ""


class Places:
    """Places for `count` connections, under the address from which the API sees each come."""

    def __init__(self, count: int) -> None:
        self._count = count
        # The longest there first.
        self._guests: dict[str, _Guest] = {}

    def take(self, address: str, caller: Caller, leave: Callable[[], object]) -> bool:
        """False: nobody makes room.

        Somebody does who is not known, since who has business here says so at once: of the origin
        that has the most of those.  Or else somebody who has more than half of all places.
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
        """Its connection has ended; it may have made room already."""
        self._guests.pop(address, None)

    def caller(self, address: str) -> Caller | None:
        """Returns who is behind a connection, None: there is none of this address."""
        guest = self._guests.get(address)
        return None if guest is None else guest.caller

    def admitted(self, address: str, tenant: str | None) -> None:
        """A call was let in, of this tenant or of one that has no name: its connection stays."""
        guest = self._guests.get(address)
        if guest is not None:
            guest.known = f"tenant {tenant}" if tenant is not None else guest.caller.origin

    def knows(self, address: str) -> bool:
        """True if a call of this connection has been let in."""
        guest = self._guests.get(address)
        return guest is not None and guest.known != ""
