"""What the holder of the token reports: that it returns, how far it is, that its slice ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens.choosing import may_go_on, successor

if TYPE_CHECKING:
    from rgpu_server.core.tokens import events as on
    from rgpu_server.core.tokens.charging import Charges
    from rgpu_server.core.tokens.holding import Holding
    from rgpu_server.core.tokens.token import Token
    from rgpu_server.core.tokens.waiting import Waiting


class Reports:
    """A report of a holding that has ended changes nothing."""

    def __init__(
        self, token: Token, waiting: Waiting, charges: Charges, out: list[do.Action]
    ) -> None:
        self._token = token
        self._waiting = waiting
        self._charges = charges
        self._out = out

    def near_end(self, event: on.NearEnd, now: int) -> None:
        holding = self._token.held_as(event.lease, event.gen)
        if holding is None:
            return
        unit = successor(self._waiting.queues, holding, self._charges.clocks)
        if unit is not None:
            self._out.append(do.Prepare(unit.lease))
        elif event.may_lengthen:
            self._lengthen(holding, now)

    def _lengthen(self, holding: Holding, now: int) -> None:
        """The holder would be picked again.  It goes on without returning the token, so that the
        device does not run dry.
        """
        token, queues = self._token, self._waiting.queues
        if holding.ends_at is None or not queues.ready:
            return
        if not may_go_on(token.params, holding, self._charges.clocks):
            return
        self._charges.ended(holding)
        holding.run_ns = 0
        token.slices.measure(holding.unit, 0, False)
        if holding.lent:
            queues.surplus.raise_level(holding.unit)
        token.lengthen(holding, holding.ends_at, now)

    def returned(self, event: on.Returned, now: int) -> None:
        token = self._token
        holding = token.held_as(event.lease, event.gen)
        if holding is None:
            self._out.append(do.Audit(event.lease, event.gen, event.busy_ns))
            return
        unit = holding.unit
        busy = self._charges.report(holding, event.held_ns, event.busy_ns)
        self._charges.ended(holding)
        unit.kernel_ns = event.kernel_ns or unit.kernel_ns
        token.slices.measure(unit, busy, event.empty)
        unit.wants = not event.empty
        token.put_down(holding)
        if unit.wants and not unit.paused:
            self._waiting.enter(unit, now)
        else:
            self._waiting.leave(unit, now)

    def progressed(self, event: on.Progressed, now: int) -> None:
        holding = self._token.held_as(event.lease, event.gen)
        if holding is not None:
            busy = self._charges.report(holding, event.held_ns, event.busy_ns)
            holding.unit.burst_ns += busy
