"""Which lease gets a token that nobody has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.tokens.units import State

if TYPE_CHECKING:
    from rgpu_server.core.tokens.clock import Clocks
    from rgpu_server.core.tokens.queues import ReadyQueues
    from rgpu_server.core.tokens.token import Token


class Picker:
    """Serves requests first, and lends the device when no request is behind."""

    def __init__(self, token: Token, queues: ReadyQueues, clocks: Clocks) -> None:
        self._token = token
        self._queues = queues
        self._clocks = clocks

    def pick(self, now: int) -> None:
        """Gives the token to the lease that is furthest behind its request, relative to the
        request.  If no lease is owed anything, the device is lent.
        """
        queues, clocks = self._queues, self._clocks
        payer = queues.first()
        if payer is None:
            self._token.returned = None
            if clocks.idle_since is None:
                clocks.idle_since = now
            return
        clocks.idle_since = None
        unit, passed_on = payer.head, False
        lent = payer.opens > clocks.device_ns
        if lent:
            unit = queues.surplus.first() or unit
            queues.surplus.raise_level(unit)
            payer = unit.payer
            due = payer.waiting.first_due()
            if due is not None:
                # The payer passes the surplus on to the lease that is behind its own request.
                unit, passed_on = due, True
        among_siblings = passed_on and queues.ready == payer.waiting.count
        queues.take(unit)
        unit.enter(State.HOLDING, now)
        holding = self._token.grant(unit, lent, passed_on, now)
        holding.among_siblings = among_siblings
        queues.offer(payer)
