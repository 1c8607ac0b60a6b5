"""What is kept on each device for the claims that wait in line: later leases do not take it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_server.core.model import Device, Quota

WAIT_HINT = "; `rgpu run --wait` waits behind them"
# In place of a tenant: the bar is for all tenants.
_EVERYBODY = ""
# A tenant may bar others again when this many of its turns have passed since its turn began.
_TURNS_APART = 10


class Bars:
    """What the claims in line miss on each device: memory or share."""

    def __init__(self) -> None:
        self._memory: set[tuple[int, str]] = set()
        self._share: set[tuple[int, str]] = set()

    def clear(self) -> None:
        """Nobody waits, as far as is known."""
        self._memory.clear()
        self._share.clear()

    def add(self, ordinals: Iterable[int], *, memory: bool, tenant: str = _EVERYBODY) -> None:
        """A claim waits on these devices for memory, or for a share.

        tenant: the bar is for leases of this tenant only.
        """
        bars = self._memory if memory else self._share
        bars.update((ordinal, tenant) for ordinal in ordinals)

    def keep_out(self, device: Device, quota: Quota, tenant: str) -> bool:
        """True if a lease of the tenant with these ceilings would take what a claim waits for."""
        whom = {(device.ordinal, _EVERYBODY), (device.ordinal, tenant)}
        return bool(whom & self._memory) or (
            quota.share_request_ppm > 0 and bool(whom & self._share)
        )


class Turns:
    """When each tenant's claims last began to bar other tenants.

    A turn lasts `seconds`, and a tenant has one in ten times that.  Without this bound one claim
    that never fits would keep everybody else from the device for as long as it waits.  A claim that
    leaves and comes again goes on with the same turn.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began: dict[str, float] = {}

    def ends_at(self, tenant: str, now: float) -> float | None:
        """Returns when the tenant's turn ends, which begins now if it may; None: it has had one."""
        began = self._began.get(tenant)
        if began is None or now - began >= _TURNS_APART * self._seconds:
            self._forget(now)
            began = self._began[tenant] = now
        ends = began + self._seconds
        return ends if now < ends else None

    def _forget(self, now: float) -> None:
        apart = _TURNS_APART * self._seconds
        self._began = {name: at for name, at in self._began.items() if now - at < apart}
