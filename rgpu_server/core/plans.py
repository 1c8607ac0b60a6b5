"""A request for a lease, and the ways to meet it on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_server.core.quota import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.bars import Bars
    from rgpu_server.core.model import Amount, Device, Quota


class Ask(Struct, frozen=True):
    """A request for a lease.

    quota_on: its ceilings on a device. number: its place in the order of grants. before: what a
    lease that changes has now. bars: the room that is kept for claims in line; None: the ask
    ignores it.
    """

    tenant: str
    ordinal: int | None
    quota_on: Callable[[Device], Quota]
    number: int
    before: Amount = NOTHING
    may_reclaim: bool = True
    bars: Bars | None = None


class Plan(Struct, frozen=True):
    """How an ask can be met on a device.

    dropped, weakened, noticed: the leases that make room. wait: the room is free only when the
    noticed leases have ended. free: what is free on the device. missing: what is missing there all
    the same. refusal: the sentence if the tenant's quota is too small, else "".
    """

    device: Device
    quota: Quota
    dropped: tuple[str, ...] = ()
    weakened: tuple[str, ...] = ()
    noticed: tuple[str, ...] = ()
    wait: bool = False
    free: Amount = NOTHING
    missing: Amount = NOTHING
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """True if the ask can be granted now."""
        return not (self.wait or self.refusal or self.missing != NOTHING)


def disturbance(plan: Plan) -> tuple[bool, bool, bool, int, int, int, int, int]:
    return (
        bool(plan.refusal),
        plan.missing != NOTHING,
        plan.wait,
        len(plan.noticed),
        len(plan.weakened),
        len(plan.dropped),
        -plan.free.memory_bytes,
        plan.device.ordinal,
    )
