"""The API's connections: who is at the other end of each, and who makes room for whom."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_server.service.callers import is_own_uid

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.service.callers import Caller

# Beyond the limit, for the server's own user: whoever else has taken all places can be revoked.
_OWN_PLACES = 8


@dataclass(slots=True)
class _Guest:
    """leave: ends the connection.  known: a call of it has been let in."""

    caller: Caller
    leave: Callable[[], object]
    known: bool = False


class Places:
    """Places for `count` connections, under the address from which the API sees each come."""

    def __init__(self, count: int) -> None:
        self._count = count
        # The longest there first.
        self._guests: dict[str, _Guest] = {}

    def take(self, address: str, caller: Caller, leave: Callable[[], object]) -> bool:
        """False: all are taken by callers that are known.  Of the others the one that has been
        there longest makes room: who has business here says so at once.
        """
        own = caller.uid is not None and is_own_uid(caller.uid)
        if len(self._guests) >= self._count + _OWN_PLACES * own:
            stranger = next((a for a, guest in self._guests.items() if not guest.known), None)
            if stranger is None:
                return False
            self._guests.pop(stranger).leave()
        self._guests[address] = _Guest(caller, leave)
        return True

    def free(self, address: str) -> None:
        """Its connection has ended; it may have made room already."""
        self._guests.pop(address, None)

    def caller(self, address: str) -> Caller | None:
        """Returns who is behind a connection, None: there is none of this address."""
        guest = self._guests.get(address)
        return None if guest is None else guest.caller

    def admitted(self, address: str) -> None:
        """A call was let in: its connection stays."""
        guest = self._guests.get(address)
        if guest is not None:
            guest.known = True

    def knows(self, address: str) -> bool:
        """True if a call of this connection has been let in."""
        guest = self._guests.get(address)
        return guest is not None and guest.known
