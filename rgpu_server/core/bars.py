"""Bars: the room on each device that is kept for claims in line, and that later leases may not
take.

A claim bars another tenant only from room that this tenant would borrow or has without a quota. It
does not bar the tenant from its own quota. A claim bars later claims of its own tenant from all of
the room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_server.core.model import Device, Quota

WAIT_HINT = "; `rgpu run --wait` waits behind them"
# A tenant may bar others again when this many of its turns have passed since its turn began.
_TURNS_APART = 10

# Device -> tenant of a claim that waits there -> whether the claim bars other tenants too.
_Waiting = dict[int, dict[str, bool]]


class Bars:
    """The memory or share that claims in line miss on each device."""

    def __init__(self) -> None:
        self._memory: _Waiting = {}
        self._share: _Waiting = {}

    def __bool__(self) -> bool:
        """True if a device is barred for any tenant."""
        return bool(self._memory or self._share)

    def clear(self) -> None:
        """Removes all bars."""
        self._memory.clear()
        self._share.clear()

    def add(
        self, ordinals: Iterable[int], *, memory: bool, tenant: str, everybody: bool = False
    ) -> None:
        """Bars these devices, because a claim of the tenant waits there for memory, or for a share.

        everybody: the bar holds for leases of other tenants, too.
        """
        bars = self._memory if memory else self._share
        for ordinal in ordinals:
            here = bars.setdefault(ordinal, {})
            here[tenant] = everybody or here.get(tenant, False)

    def keep_out(self, device: Device, quota: Quota, tenant: str, owned: tuple[bool, bool]) -> bool:
        """True if a lease of the tenant with these ceilings would take room for which a claim
        waits.

        owned: whether the share, and the memory, of the lease is within what the tenant owns.
        """
        share, memory = owned
        return _barred(self._memory, device, tenant, memory) or (
            quota.share_request_ppm > 0 and _barred(self._share, device, tenant, share)
        )


def _barred(bars: _Waiting, device: Device, tenant: str, owned: bool) -> bool:
    here = bars.get(device.ordinal, {})
    return tenant in here or (not owned and any(here.values()))


class Turns:
    """Limits how long each tenant's claims may bar other tenants.

    A turn lasts `seconds`, and a tenant has one turn in ten times that. Without this bound one
    claim that never fits would keep all other tenants from the device while it waits. A claim that
    leaves and comes again continues the same turn.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: dict[str, float] = {}

    def ends_at(self, tenant: str, now: float) -> float | None:
        """Returns when the tenant's turn ends. Begins a turn if the tenant may have one; None: it
        may not.
        """
        began = self._began.get(tenant)
        if began is None or now - began >= _TURNS_APART * self._seconds:
            self._forget(now)
            began = self._began[tenant] = now
        ends = began + self._seconds
        return ends if now < ends else None

    def _forget(self, now: float) -> None:
        apart = _TURNS_APART * self._seconds
        self._began = {name: at for name, at in self._began.items() if now - at < apart}
