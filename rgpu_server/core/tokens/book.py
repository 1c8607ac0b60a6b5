"""The leases of one device: admission, rates, and the debts of those who left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.actions import Refused
from rgpu_server.core.tokens.debt import Payer
from rgpu_server.core.tokens.units import PPB
from rgpu_server.core.tokens.windows import IntervalWindow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from rgpu_server.core.tokens.clock import Clocks
    from rgpu_server.core.tokens.params import TokenParams
    from rgpu_server.core.tokens.share import Share
    from rgpu_server.core.tokens.units import Unit


class UnitBook:
    """Every decision here may look at all units; none is on the path of a grant."""

    def __init__(self, params: TokenParams) -> None:
        self._params = params
        self._units: dict[str, Unit] = {}
        self._payers: dict[str, Payer] = {}
        # By payer: a lease that left with an empty cap bucket.
        self._caps: dict[str, Unit] = {}

    def get(self, lease: str) -> Unit | None:
        return self._units.get(lease)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units.values())

    def __len__(self) -> int:
        return len(self._units)

    @property
    def payers(self) -> Collection[Payer]:
        """Those with leases here, and those whose leases left in debt."""
        return self._payers.values()

    def requested_ppm(self) -> int:
        return sum(unit.share.request_ppm for unit in self)

    def refusal(self, lease: str, share: Share) -> Refused | None:
        """What a join or a resize would pass the device by, if it would."""
        others = sum(u.share.request_ppm for u in self if u.lease != lease)
        over = others + share.request_ppm - PPM
        if over <= 0:
            return None
        return Refused(lease, share.request_ppm, over, max(PPM - others, 0))

    def payer(self, name: str, clocks: Clocks) -> Payer:
        """The account of a payer, with what its earlier leases left unpaid."""
        payer = self._payers.get(name)
        if payer is None:
            payer = self._payers[name] = Payer(name, clocks)
        return payer

    def add(self, unit: Unit) -> None:
        self._units[unit.lease] = unit
        unit.payer.leases += 1

    def remove(self, unit: Unit) -> None:
        if self._units.get(unit.lease) is unit:
            del self._units[unit.lease]
            unit.payer.leases -= 1

    def restore(self, unit: Unit) -> None:
        """A lease goes on with the empty cap bucket that another one of its payer left behind."""
        old = self._caps.pop(unit.payer.name, None)
        if old is not None:
            old.refill(unit.credit_at, self._params.bucket_ns)
            unit.credit = min(unit.credit, old.credit)

    def remember(self, unit: Unit, device_ns: int) -> None:
        """A lease has left.  What it or its payer still owes is kept for the payer's next one."""
        payer = unit.payer
        if unit.credit < 0:
            old = self._caps.get(payer.name)
            if old is not None:
                old.refill(unit.credit_at, self._params.bucket_ns)
                unit.credit = min(unit.credit, old.credit)
            unit.window = IntervalWindow()
            self._caps[payer.name] = unit
        if not (payer.leases or payer.name in self._caps or payer.owes(device_ns)):
            del self._payers[payer.name]
        absent = [p for p in self._payers.values() if not p.leases]
        if len(absent) > self._params.remembered_debts:
            absent.sort(key=lambda p: p.debt)
            for least in absent[: len(absent) // 2]:
                del self._payers[least.name]
                self._caps.pop(least.name, None)

    def set_rates(self, device_ns: int) -> list[Unit]:
        """Sets what each tag and payer is charged by, and returns the units for which it changed.

        Best-effort leases share one floor.  With it the sum may pass the device, and then all
        rates shrink alike, so that tags never drift.  A tag that is ahead or behind keeps its
        device time.
        """
        params = self._params
        poor = sum(1 for unit in self if not unit.share.request_ppm)
        total = max(PPM, self.requested_ppm() + (params.floor_ppm if poor else 0))
        changed = []
        for unit in self:
            part = unit.share.request_ppm * PPB
            rate = (part or params.floor_ppm * PPB // poor) // total or 1
            if rate == unit.rate_ppb:
                continue
            due = unit.due
            unit.payer.uncount(unit)
            unit.tag = device_ns + (unit.tag - device_ns) * unit.rate_ppb // rate
            unit.rate_ppb = rate
            if due:
                unit.payer.count(unit)
            changed.append(unit)
        self._sum_rates()
        return changed

    def _sum_rates(self) -> None:
        sums: dict[str, int] = {}
        for unit in self:
            sums[unit.payer.name] = sums.get(unit.payer.name, 0) + unit.rate_ppb
        for name, rate in sums.items():
            payer = self._payers[name]
            payer.settle()
            payer.rate_ppb = rate
