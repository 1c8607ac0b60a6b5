"""When time alone changes something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.tokens import actions as do

if TYPE_CHECKING:
    from rgpu_server.core.tokens import events as on
    from rgpu_server.core.tokens.clock import Clocks
    from rgpu_server.core.tokens.queues import ReadyQueues
    from rgpu_server.core.tokens.token import Token


class Timer:
    """due: when `TimePassed` shall come; None while time alone changes nothing."""

    def __init__(
        self, token: Token, queues: ReadyQueues, clocks: Clocks, out: list[do.Action]
    ) -> None:
        self.due: int | None = None
        self._token = token
        self._queues = queues
        self._clocks = clocks
        self._out = out
        # The time of the last TimerAt, on the caller's clock, until it has come.
        self._armed: int | None = None

    def passed(self, event: on.TimePassed, now: int) -> None:
        """The caller's timer has fired, perhaps too early.  So the next time is announced anew."""
        self._armed = None

    def announce(self, now: int) -> None:
        """Names the next time, unless the caller's timer fires no later than that."""
        due = self._queues.throttled_until()
        holding = self._token.holding
        silent_at = None if holding is None else holding.silent_at
        if silent_at is not None and (due is None or silent_at < due):
            due = silent_at
        self.due = due
        if due is None:
            return
        clocks, armed = self._clocks, self._armed
        outside = clocks.outside(due)
        if armed is None or outside < armed or armed <= clocks.outside(now):
            self._armed = outside
            self._out.append(do.TimerAt(outside))
