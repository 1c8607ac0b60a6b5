"""How many claims wait: in line, or for the programs in their lease to end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rgpu_server.core.model import Code, RefusedError

if TYPE_CHECKING:
    from rgpu_server.core.events import ClaimRequested
    from rgpu_server.core.policy import Policy


class Waiting:
    """Counts the claims that wait, of all, of each tenant and from each address.

    The bound of an address is for claims that show no credential: many tenants may come from one
    address, and what a tenant may have waiting is bounded where nobody can borrow its name.
    """

    def __init__(self, policy: Policy) -> None:
        self._most = policy.max_waiting
        self._all = 0
        self._tenants = Counter[str]()
        self._addresses = Counter[str]()

    def come(self, event: ClaimRequested) -> None:
        """One more claim waits; RefusedError if too many do."""
        every, tenant, address = self._most
        for who, there, most in (
            ("", self._all, every),
            (f" of tenant {event.tenant!r}", self._tenants[event.tenant], tenant),
            (
                " from this address",
                0 if event.proved else self._addresses[event.address],
                address,
            ),
        ):
            if there >= most:
                raise RefusedError(
                    Code.SERVER_FULL,
                    f"{there} claims{who} wait in line for room already, as many as may; try again "
                    "when one has been served",
                )
        self._count(event, 1)

    def go(self, event: ClaimRequested) -> None:
        """A claim that came waits no longer."""
        self._count(event, -1)

    def _count(self, event: ClaimRequested, more: int) -> None:
        self._all += more
        _add(self._tenants, event.tenant, more)
        if not event.proved:
            _add(self._addresses, event.address, more)


def _add(counts: Counter[str], name: str, more: int) -> None:
    counts[name] += more
    if not counts[name]:  # names are what clients say: none is remembered for nothing
        del counts[name]
