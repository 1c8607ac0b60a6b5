"""The leases of one device: admission, rates, and the debts of leases that left."""

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
    """Any method but `get` may look at all units; none is called to decide on a grant."""

    def __init__(self, params: TokenParams, clocks: Clocks) -> None:
        self._params = params
        self._clocks = clocks
        self._units: dict[str, Unit] = {}
        self._payers: dict[str, Payer] = {}
        # Payer -> the lease that left with an empty cap bucket.
        self._caps: dict[str, Unit] = {}

    def get(self, lease: str) -> Unit | None:
        return self._units.get(lease)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units.values())

    def __len__(self) -> int:
        return len(self._units)

    @property
    def payers(self) -> Collection[Payer]:
        """The payers of the leases on the device, and those whose leases left in debt."""
        return self._payers.values()

    def requested_ppm(self) -> int:
        """The sum of all requests."""
        return sum(unit.share.request_ppm for unit in self._units.values())

    def refusal(self, lease: str, share: Share) -> Refused | None:
        """Refuses a join or a resize if the requests would add up to more than the device."""
        unit = self._units.get(lease)
        others = self.requested_ppm() - (0 if unit is None else unit.share.request_ppm)
        over = others + share.request_ppm - PPM
        if over <= 0:
            return None
        return Refused(lease, share.request_ppm, over, max(PPM - others, 0))

    def payer(self, name: str) -> Payer:
        """The account of a payer, with what its earlier leases left unpaid."""
        payer = self._payers.get(name)
        if payer is None:
            payer = self._payers[name] = Payer(name, self._clocks)
        return payer

    def add(self, unit: Unit) -> None:
        """Adds a new unit, or one that was removed and comes back before it is remembered."""
        self._units[unit.lease] = unit
        unit.payer.leases += 1
        if unit.gone:
            unit.gone = False
            unit.payer.leaving -= 1

    def remove(self, unit: Unit) -> None:
        """Removes a unit.  `remember` must follow when nothing of it runs on the device."""
        del self._units[unit.lease]
        unit.gone = True
        unit.payer.leases -= 1
        unit.payer.leaving += 1

    def restore(self, unit: Unit) -> None:
        """Gives a new lease the empty cap bucket that another lease of its payer left."""
        old = self._caps.pop(unit.payer.name, None)
        if old is not None:
            self._share_bucket(unit, old)

    def remember(self, unit: Unit, device_ns: int) -> None:
        """A lease has left for good.  Its debts and its payer's are kept for the next lease."""
        payer = unit.payer
        payer.leaving -= 1
        if unit.credit < 0:
            old = self._caps.get(payer.name)
            if old is not None:
                self._share_bucket(unit, old)
            unit.window = IntervalWindow()
            self._caps[payer.name] = unit
        here = payer.leases or payer.leaving
        if not (here or payer.name in self._caps or payer.owes(device_ns)):
            del self._payers[payer.name]
        self._forget()

    def _share_bucket(self, unit: Unit, old: Unit) -> None:
        """The unit goes on with the emptier one of the two cap buckets."""
        old.refill(unit.credit_at, self._params.bucket_ns)
        unit.credit = min(unit.credit, old.credit)

    def _forget(self) -> None:
        """Drops the smaller half of the debts when too many payers without leases have one."""
        absent = [p for p in self._payers.values() if not (p.leases or p.leaving)]
        if len(absent) > self._params.remembered_debts:
            absent.sort(key=lambda p: p.debt)
            for least in absent[: len(absent) // 2]:
                del self._payers[least.name]
                self._caps.pop(least.name, None)

    def set_rates(self, device_ns: int) -> list[Unit]:
        """Sets the rates of all units and payers, and returns the units whose rate changed.

        Best-effort leases share one floor.  With the floor, the rates may add up to more than the
        device; then all rates shrink alike, so that tags keep up with the device clock.  A tag that
        is ahead of the clock or behind keeps its device time.
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
