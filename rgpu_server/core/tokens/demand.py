"""Leases begin and stop to want the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.tokens.units import State

if TYPE_CHECKING:
    from rgpu_server.core.tokens import events as on
    from rgpu_server.core.tokens.book import UnitBook
    from rgpu_server.core.tokens.charging import Charges
    from rgpu_server.core.tokens.token import Token
    from rgpu_server.core.tokens.units import Unit
    from rgpu_server.core.tokens.waiting import Waiting


class Demand:
    """Handles the events of leases that begin to wait for the token, or wait no longer."""

    def __init__(self, book: UnitBook, token: Token, waiting: Waiting, charges: Charges) -> None:
        self._book = book
        self._token = token
        self._waiting = waiting
        self._charges = charges

    def woke(self, event: on.Woke, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is not None and not unit.wants:
            unit.wants = True
            self.admit(unit, now)

    def slept(self, event: on.Slept, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is not None and unit.state is not State.HOLDING:
            unit.wants = False
            self._waiting.leave(unit, now)

    def paused(self, event: on.Paused, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None or unit.paused:
            return
        unit.paused = True
        holding = self._token.held_by(unit)
        if holding is not None:
            self._token.recall(holding, now, now)
        else:
            self._waiting.leave(unit, now)

    def resumed(self, event: on.Resumed, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None or not unit.paused:
            return
        unit.paused = False
        if unit.wants:
            self.admit(unit, now)

    def resume_throttled(self, now: int) -> None:
        """Admits the units whose caps let them run by now."""
        while (unit := self._waiting.queues.pop_resumed(now)) is not None:
            self.admit(unit, now)

    def admit(self, unit: Unit, now: int) -> None:
        """A unit begins to wait.  Its credit is limited here and nowhere else; its debt stays."""
        token, payer = self._token, unit.payer
        if unit.paused or token.out_with(unit):
            return
        owed_from = token.device_now(now) - self._charges.sleep_credit_ns()
        payer.settle()
        unit.tag = max(unit.tag, owed_from, payer.spent_until)
        unit.lent_tag = max(unit.lent_tag, self._waiting.queues.surplus.level(unit.share))
        self._waiting.enter(unit, now)
        if unit.state is State.READY and token.holding is not None:
            token.contend(token.holding, unit, now)
