"""Claims of owners: the borrowed amounts that owners wait to get back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.core.model import Amount, Device
    from rgpu_server.core.policy import Policy


class Claim(Struct, frozen=True):
    """An amount that an owner waits to get back on a device, and that is kept for it until
    `until`.
    """

    tenant: str
    device: int
    model: str
    amount: Amount
    until: float


class Claims:
    """At most one claim of each tenant on each model of device."""

    def __init__(self, policy: Policy) -> None:
        self._keep = policy.reclaim_seconds + policy.claim_seconds
        self._claims: dict[tuple[str, str], Claim] = {}

    def current(self, now: float) -> list[Claim]:
        """Returns the claims that have not expired."""
        return [claim for claim in self._claims.values() if claim.until > now]

    def add(self, tenant: str, device: Device, amount: Amount, now: float) -> None:
        """Notes that a tenant waits for `amount` of a device; replaces its earlier claim on the
        model.
        """
        claim = Claim(tenant, device.ordinal, device.model, amount, now + self._keep)
        self._claims[tenant, device.model] = claim

    def met(self, tenant: str, model: str, amount: Amount) -> None:
        """Removes the tenant's claim after it was given `amount`, unless the claim is for more."""
        claim = self._claims.get((tenant, model))
        if claim is not None and amount.memory_bytes >= claim.amount.memory_bytes:
            del self._claims[tenant, model]

    def expire(self, now: float) -> bool:
        """Removes expired claims; returns True if there were any."""
        late = [who for who, claim in self._claims.items() if claim.until <= now]
        for who in late:
            del self._claims[who]
        return bool(late)

    def ends(self) -> list[float]:
        """Returns the times at which claims expire."""
        return [claim.until for claim in self._claims.values()]
