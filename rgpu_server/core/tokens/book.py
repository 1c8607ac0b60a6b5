"""The leases of one device: admission, rates, and the debts of those who left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.actions import Refused
from rgpu_server.core.tokens.units import PPB, Unit
from rgpu_server.core.tokens.windows import IntervalWindow

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rgpu_server.core.tokens.params import TokenParams
    from rgpu_server.core.tokens.share import Share


class UnitBook:
    """Every decision here may look at all units; none is on the path of a grant."""

    def __init__(self, params: TokenParams) -> None:
        self._params = params
        self._units: dict[str, Unit] = {}
        self._debts: dict[str, Unit] = {}

    def get(self, lease: str) -> Unit | None:
        return self._units.get(lease)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units.values())

    def __len__(self) -> int:
        return len(self._units)

    def requested_ppm(self) -> int:
        return sum(unit.share.request_ppm for unit in self)

    def refusal(self, lease: str, share: Share) -> Refused | None:
        """What a join or a resize would pass the device by, if it would."""
        others = sum(u.share.request_ppm for u in self if u.lease != lease)
        over = others + share.request_ppm - PPM
        if over <= 0:
            return None
        return Refused(lease, share.request_ppm, over, max(PPM - others, 0))

    def add(self, unit: Unit) -> None:
        self._units[unit.lease] = unit

    def remove(self, unit: Unit) -> None:
        if self._units.get(unit.lease) is unit:
            del self._units[unit.lease]

    def restore(self, unit: Unit, device_ns: int) -> None:
        """A lease begins with what leases of its payer left unpaid, under whatever name.  One
        without a request also with what another such lease of its payer owes now: its first
        service costs nothing to ask for.  Wants the unit's rate to be set.
        """
        old = self._debts.pop(unit.payer, None)
        owed = 0 if old is None else old.owed_by(device_ns)
        if not unit.share.request_ppm:
            poor = (u for u in self if u.payer == unit.payer and not u.share.request_ppm)
            owed = max([owed, *(u.owed_by(device_ns) for u in poor if u is not unit)])
        if owed:
            unit.tag = max(unit.tag, device_ns + owed // unit.rate_ppb)
        if old is None:
            return
        old.refill(unit.credit_at, self._params.bucket_ns)
        unit.credit = min(unit.credit, old.credit)

    def remember(self, unit: Unit, device_ns: int) -> None:
        """Keeps what a lease that left still owes, so that coming back does not clear it."""
        if unit.tag <= device_ns and unit.credit >= 0:
            return
        if len(self._debts) >= self._params.remembered_debts:
            owing = {k: u for k, u in self._debts.items() if u.tag > device_ns}
            least = sorted(owing, key=lambda k: owing[k].tag)[: len(owing) // 2]
            self._debts = {k: u for k, u in owing.items() if k not in least}
        old = self._debts.get(unit.payer)
        if old is not None:
            owed = unit.owed_by(device_ns) + old.owed_by(device_ns)
            unit.tag = device_ns + owed // unit.rate_ppb
            old.refill(unit.credit_at, self._params.bucket_ns)
            unit.credit = min(unit.credit, old.credit)
        unit.window = IntervalWindow()
        self._debts[unit.payer] = unit

    def set_rates(self, device_ns: int) -> list[Unit]:
        """Sets what each tag is charged by, and returns the units for which that changed.

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
            unit.tag = device_ns + (unit.tag - device_ns) * unit.rate_ppb // rate
            unit.rate_ppb = rate
            changed.append(unit)
        return changed
