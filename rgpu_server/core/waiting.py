"""Limits how many claims wait: in line, or until the programs in their lease have ended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rgpu_server.core.model import Code, RefusedError

if TYPE_CHECKING:
    from rgpu_server.core.events import ClaimRequested
    from rgpu_server.core.policy import Policy


class Waiting:
    """Counts the claims that wait: all, those of each tenant and those from each address.

    The bound for an address counts only claims without a credential. Many tenants may share one
    address, and a tenant's bound holds only where no other client can use its name.
    """

    def __init__(self, policy: Policy) -> None:
        self._most = policy.max_waiting
        self._all = 0
        self._tenants = Counter[str]()
        self._addresses = Counter[str]()

    def come(self, event: ClaimRequested) -> None:
        """Counts one more waiting claim; RefusedError if too many wait."""
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
                    f"{there} claims{who} wait in line for room already, the most that are "
                    "allowed; try again when one has been served",
                )
        self._count(event, 1)

    def go(self, event: ClaimRequested) -> None:
        """Counts one waiting claim less."""
        self._count(event, -1)

    def _count(self, event: ClaimRequested, more: int) -> None:
        self._all += more
        _add(self._tenants, event.tenant, more)
        if not event.proved:
            _add(self._addresses, event.address, more)


def _add(counts: Counter[str], name: str, more: int) -> None:
    counts[name] += more
    if not counts[name]:  # clients choose names, so unused ones are forgotten
        del counts[name]
