"""Leases come to the device, get other shares, and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.units import State, Unit

if TYPE_CHECKING:
    from rgpu_server.core.tokens import actions as do
    from rgpu_server.core.tokens import events as on
    from rgpu_server.core.tokens.book import UnitBook
    from rgpu_server.core.tokens.demand import Demand
    from rgpu_server.core.tokens.share import Share
    from rgpu_server.core.tokens.token import Token
    from rgpu_server.core.tokens.waiting import Waiting


class Members:
    """Every event here may look at all leases of the device; none is on the path of a grant."""

    def __init__(
        self,
        book: UnitBook,
        token: Token,
        waiting: Waiting,
        demand: Demand,
        out: list[do.Action],
    ) -> None:
        self._book = book
        self._token = token
        self._waiting = waiting
        self._queues = waiting.queues
        self._demand = demand
        self._out = out

    def joined(self, event: on.Joined, now: int) -> None:
        """A lease that is here already only gets another share."""
        unit = self._book.get(event.lease)
        if self._refused(event.lease, event.share):
            return
        if unit is None:
            unit = self._revived(event.lease) or self._new_unit(event, now)
            self._book.add(unit)
            self._limit_queues()
            self._spread_rates(now)
            self._book.restore(unit)
            if unit.share == event.share:
                return
        self._reshape(unit, event.share, now)

    def resized(self, event: on.Resized, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is not None and not self._refused(event.lease, event.share):
            self._reshape(unit, event.share, now)

    def left(self, event: on.Left, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None:
            return
        self._book.remove(unit)
        self._limit_queues()
        holding = self._token.held_by(unit)
        if holding is not None:
            self._token.fence(holding, now)
        elif not self._token.out_with(unit):
            self._waiting.leave(unit, now)
            self._book.remember(unit, self._token.device_now(now))
        self._spread_rates(now)

    def _refused(self, lease: str, share: Share) -> bool:
        """Says so if the requests would add up to more than the device."""
        refusal = self._book.refusal(lease, share)
        if refusal is not None:
            self._out.append(refusal)
        return refusal is not None

    def _new_unit(self, event: on.Joined, now: int) -> Unit:
        payer = self._book.payer(event.payer or event.lease)
        serial = payer.serial = self._token.next_serial()
        return Unit(
            event.lease,
            payer,
            event.share,
            tag=self._token.device_now(now),
            lent_tag=self._queues.surplus.level(event.share),
            credit=self._token.params.bucket_ns * PPM,
            credit_at=now,
            slice_ns=self._token.slices.base_ns,
            serial=serial,
            since=now,
        )

    def _revived(self, lease: str) -> Unit | None:
        """The unit of a lease that comes back while its last holding is still being fenced."""
        fencing = self._token.fencing
        if fencing is None or fencing.unit.lease != lease:
            return None
        unit = fencing.unit
        unit.wants = unit.paused = False
        return unit

    def _reshape(self, unit: Unit, share: Share, now: int) -> None:
        """A debt or a credit keeps its device time under the new share."""
        params, surplus = self._token.params, self._queues.surplus
        if unit.capped:
            unit.refill(now, params.bucket_ns)
        else:
            unit.capped_since = unit.credit_at = now
        ahead = max(0, unit.lent_tag - surplus.level(unit.share))
        unit.lent_tag = surplus.level(share) + ahead * unit.share.weight // share.weight
        unit.take_share(share)
        self._spread_rates(now)
        if unit.state is State.READY:
            self._waiting.enter(unit, now)
        elif unit.state is State.THROTTLED:
            # The new cap may let the unit run now, and then the unit begins to wait.
            self._demand.admit(unit, now)
        holding = self._token.held_by(unit)
        if holding is not None and unit.capped and holding.ends_at is None:
            self._token.recall(holding, now, now)

    def _limit_queues(self) -> None:
        self._queues.resize(len(self._book), len(self._book.payers))

    def _spread_rates(self, now: int) -> None:
        for unit in self._book.set_rates(self._token.device_now(now)):
            if unit.state is State.READY:
                self._waiting.move(unit, now)
        for payer in self._book.payers:
            # Leases of a payer whose own rates did not change may come earlier now, too.
            self._queues.offer(payer)
