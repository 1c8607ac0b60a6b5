"""Holders that do not come back: they are recalled, asked for, and fenced."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rgpu_server.core.tokens import events as on
    from rgpu_server.core.tokens.book import UnitBook
    from rgpu_server.core.tokens.charging import Charges
    from rgpu_server.core.tokens.token import Token
    from rgpu_server.core.tokens.waiting import Waiting


class Watch:
    """Looks for a holder that is silent for too long, and takes the token from one that is gone."""

    def __init__(self, book: UnitBook, token: Token, waiting: Waiting, charges: Charges) -> None:
        self._book = book
        self._token = token
        self._waiting = waiting
        self._charges = charges

    def look(self, now: int) -> None:
        """A holder that is late is recalled, then asked for, then fenced."""
        token, holding = self._token, self._token.holding
        if holding is None or holding.silent_at is None or holding.silent_at > now:
            return
        if holding.recall_at is None:
            token.recall(holding, now, now)
            return
        since = max(holding.recall_at, holding.contended_at or 0)
        overdue = now - since >= token.params.drain_limit_ns
        if holding.asked or (overdue and self._waiting.queues.ready):
            token.fence(holding, now)
        else:
            token.ask(holding, now)

    def alive(self, event: on.Alive, now: int) -> None:
        holding = self._token.held_as(event.lease, event.gen)
        if holding is not None and holding.asked:
            self._token.answered(holding, now)

    def lost(self, event: on.Lost, now: int) -> None:
        holding = self._token.held_as(event.lease, event.gen)
        if holding is not None:
            self._token.fence(holding, now)

    def died(self, event: on.Died, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None:
            return
        holding = self._token.held_by(unit)
        if holding is not None:
            self._token.fence(holding, now)
        else:
            unit.wants = False
            self._waiting.leave(unit, now)

    def fenced(self, event: on.Fenced, now: int) -> None:
        """The holder is charged for the time up to now, because its work could run until now."""
        fencing = self._token.fencing
        if fencing is None or not fencing.matches(event.lease, event.gen):
            return
        unit, held = fencing.unit, now - fencing.since
        busy = held if event.busy_ns is None else min(max(event.busy_ns, 0), held)
        self._charges.charge(fencing, held, busy)
        self._charges.ended(fencing)
        unit.burst_ns = 0
        self._token.fencing = None
        if unit.gone:
            self._book.remember(unit, self._token.device_now(now))
        elif unit.wants and not unit.paused:
            self._waiting.enter(unit, now)
