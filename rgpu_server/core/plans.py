"""A lease as asked for, and how that can be met on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rgpu_server.core.quota import NOTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.bars import Bars
    from rgpu_server.core.model import Amount, Device, Quota


@dataclass(frozen=True, slots=True)
class Ask:
    """A lease as asked for.

    quota_on: its ceilings on a device.  number: its place in the order of grants.  before: what it
    has, where it changes.  bars: what is kept for those who wait in line; None: nothing is.
    """

    tenant: str
    ordinal: int | None
    quota_on: Callable[[Device], Quota]
    number: int
    before: Amount = NOTHING
    may_reclaim: bool = True
    bars: Bars | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How an ask can be met on a device.

    dropped, weakened, noticed: the leases that give way.  wait: not before the noticed ones are
    gone.  short: what is missing in spite of all; `within` then tells a full device from a quota.
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
        """True if nothing has to be waited for."""
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
