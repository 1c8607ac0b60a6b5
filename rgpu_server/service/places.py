"""The API's connections: who is at the other end of each, and which one goes for a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.crowds import Crowds, of_largest_crowd
from rgpu_server.service.callers import is_own_uid

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.service.callers import Caller

# Places beyond the limit for the server's own user, so that it can always revoke leases.
_OWN_PLACES = 8
# Places beyond the limit, at most so many, where newcomers make their first call.
_MOST_ENTRANCES = 16


class _Guest(Struct):
    """A connection. leave: closes it. known: whose call on it was admitted, or "". proved: a
    credential says so.
    """

    caller: Caller
    leave: Callable[[], object]
    known: str = ""
    proved: bool = False

    @property
    def own(self) -> bool:
        """True if it is of the server's own user."""
        return self.caller.uid is not None and is_own_uid(self.caller.uid)


class Places:
    """Places for `count` API connections, keyed by the address that the API sees.

    A newcomer may be anybody, and costs nobody else the connection but another one without an
    admitted call. So it comes in beside the places, and takes one with its first admitted call,
    when it is known for whom somebody else has to leave.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._entrances = min(max(count // 4, 1), _MOST_ENTRANCES)
        # The longest present first.
        self._guests: dict[str, _Guest] = {}

    def take(self, address: str, caller: Caller, leave: Callable[[], object]) -> None:
        """Lets a connection in.

        If all places are taken, and as many connections without an admitted call are there as may
        be beside them, one of these is closed: of the origin that has the most of them. Legitimate
        clients make a call at once.
        """
        guest = _Guest(caller, leave)
        if len(self._guests) >= self._limit(guest):
            strangers = [(a, g.caller.origin) for a, g in self._guests.items() if not g.known]
            if len(strangers) >= self._entrances:
                leaves = of_largest_crowd(strangers, caller.origin)
                assert leaves is not None, "there is at least one"
                self._guests.pop(leaves).leave()
        self._guests[address] = guest

    def _limit(self, guest: _Guest) -> int:
        return self._count + _OWN_PLACES * guest.own

    def free(self, address: str) -> None:
        """Frees the place of a connection that has ended; it may have been freed already."""
        self._guests.pop(address, None)

    def caller(self, address: str) -> Caller | None:
        """Returns the caller behind a connection, or None."""
        guest = self._guests.get(address)
        return None if guest is None else guest.caller

    def admitted(self, address: str, tenant: str | None, *, operator: bool = False) -> bool:
        """Notes that a call of this tenant (None: unnamed) was admitted; the connection has a place
        from then on. Returns False if there is none for it.

        If all are taken, the oldest connection of whoever has the most makes room, if it has at
        least two more than the tenant; else the tenant's own oldest. So tenants that act together
        keep no other one out, unless each has one place. An operator's gets even that. Who proves
        nothing takes no place of one that does.
        """
        guest = self._guests.get(address)
        if guest is None:
            return True
        who = f"tenant {tenant}" if tenant is not None else guest.caller.origin
        proved = tenant is not None or operator
        if not guest.known and self._all_taken(guest):
            leaves = self._gives_way(who, proved=proved, operator=operator)
            if leaves is None:
                return False
            self._guests.pop(leaves).leave()
        guest.known, guest.proved = who, proved
        return True

    def _all_taken(self, guest: _Guest) -> bool:
        return sum(bool(g.known) for g in self._guests.values()) >= self._limit(guest)

    def _gives_way(self, who: str, *, proved: bool, operator: bool) -> str | None:
        crowds: Crowds[str] = Crowds()
        for address, guest in self._guests.items():
            if guest.known and (proved or not guest.proved):
                crowds.come(address, guest.known)
        largest = crowds.yields(who, to_operator=operator)
        return crowds.oldest(who if largest is None else largest)

    def knows(self, address: str) -> bool:
        """Returns True if a call of this connection has been admitted."""
        guest = self._guests.get(address)
        return guest is not None and guest.known != ""
