"""Limits how many claims wait: in line, or until the programs in their lease have ended."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rgpu_common.crowds import Crowds
from rgpu_server.core.model import Code, Refusal, RefusedError

if TYPE_CHECKING:
    from rgpu_server.core.events import ClaimRequested
    from rgpu_server.core.policy import Policy


class Waiting:
    """Counts the claims that wait: all, those of each tenant and those from each address.

    The bound for an address counts only claims without a credential. Many tenants may share one
    address, and a tenant's bound holds only where no other client can use its name.

    Where tenants fill the bound for all together, the newest claim of the one with the most makes
    room for a claim of one with fewer.
    """

    def __init__(self, policy: Policy) -> None:
        self._most = policy.max_waiting
        self._there: dict[int, ClaimRequested] = {}
        self._crowds: Crowds[int] = Crowds()
        self._tenants = Counter[str]()
        self._addresses = Counter[str]()

    def come(self, event: ClaimRequested) -> ClaimRequested | None:
        """Counts one more waiting claim. Returns the claim that has to leave for it, which counts
        until it goes, or None; RefusedError if too many wait.
        """
        every, tenant, address = self._most
        leaves = None
        if len(self._there) >= every:
            leaves = self._crowds.gives_way(_whose(event), to_operator=event.operator)
        if leaves is None:
            self._check("", len(self._there), every)
        self._check(f" of tenant {event.tenant!r}", self._tenants[event.tenant], tenant)
        if not event.proved:
            self._check(" from this address", self._addresses[event.address], address)
        self._there[event.claim] = event
        self._crowds.come(event.claim, _whose(event))
        self._count(event, 1)
        return None if leaves is None else self._there[leaves]

    def go(self, event: ClaimRequested) -> None:
        """Counts one waiting claim less."""
        del self._there[event.claim]
        self._crowds.go(event.claim)
        self._count(event, -1)

    @staticmethod
    def _check(who: str, there: int, most: int) -> None:
        if there >= most:
            raise RefusedError(
                Code.SERVER_FULL,
                f"{there} claims{who} wait in line for room already, the most that are allowed; "
                "try again when one has been served",
            )

    def _count(self, event: ClaimRequested, more: int) -> None:
        _add(self._tenants, event.tenant, more)
        if not event.proved:
            _add(self._addresses, event.address, more)


def crowded_out(event: ClaimRequested) -> Refusal:
    """Returns what a claim is told that leaves for one of another tenant."""
    whose = f"of tenant {event.tenant!r}" if event.proved else "from this address"
    return Refusal(
        Code.SERVER_FULL,
        f"as many claims wait as the server allows, most of them {whose}: the newest of these made "
        "room for another client's; try again when one has been served",
    )


def _whose(event: ClaimRequested) -> str:
    """Returns whom a claim counts for: a client that may name any tenant is its address."""
    return f"tenant {event.tenant}" if event.proved else event.address


def _add(counts: Counter[str], name: str, more: int) -> None:
    counts[name] += more
    if not counts[name]:  # clients choose names, so unused ones are forgotten
        del counts[name]
