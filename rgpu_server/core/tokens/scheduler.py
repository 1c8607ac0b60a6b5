"""The token of one device: one event in, the actions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.book import UnitBook
from rgpu_server.core.tokens.charging import Charges
from rgpu_server.core.tokens.clock import Clocks
from rgpu_server.core.tokens.demand import Demand
from rgpu_server.core.tokens.members import Members
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.picker import Picker
from rgpu_server.core.tokens.queues import ReadyQueues
from rgpu_server.core.tokens.reports import Reports
from rgpu_server.core.tokens.slices import Slices
from rgpu_server.core.tokens.timer import Timer
from rgpu_server.core.tokens.token import Token
from rgpu_server.core.tokens.usage import Usage, usage_of
from rgpu_server.core.tokens.waiting import Waiting
from rgpu_server.core.tokens.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_server.core.tokens import actions as do


class TokenScheduler:
    """Decides which lease may use one device.

    Only `handle` changes anything.  `next_wake` is for the loop's timer, `usage` for reports.
    """

    def __init__(self, params: TokenParams | None = None, first_gen: int = 0) -> None:
        """first_gen: the highest generation that an earlier daemon may have granted on this device.
        So a token that returns from one of those is audited, and not taken for the holder's.
        """
        self.params = params or TokenParams()
        # The actions of the present event.  All parts append to this one list.
        self._out: list[do.Action] = []
        self._clocks = clocks = Clocks()
        self._charges = charges = Charges(self.params, clocks)
        self._book = book = UnitBook(self.params, clocks)
        self._queues = queues = ReadyQueues()
        self._slices = slices = Slices(self.params)
        waiting = Waiting(queues, slices)
        self._token = token = Token(waiting, clocks, self._out, first_gen)
        self._demand = demand = Demand(book, token, waiting, charges)
        self._watch = watch = Watch(book, token, waiting, charges)
        self._timer = timer = Timer(token, queues, clocks, self._out)
        self._picker = Picker(token, queues, clocks)
        members = Members(book, token, waiting, demand, self._out)
        reports = Reports(token, waiting, charges, self._out)
        # One row per event type: the method that handles it.
        self._handlers: dict[type[Any], Callable[[Any, int], None]] = {
            on.Joined: members.joined,
            on.Resized: members.resized,
            on.Left: members.left,
            on.Woke: demand.woke,
            on.Slept: demand.slept,
            on.Paused: demand.paused,
            on.Resumed: demand.resumed,
            on.NearEnd: reports.near_end,
            on.Returned: reports.returned,
            on.Progressed: reports.progressed,
            on.Alive: watch.alive,
            on.Lost: watch.lost,
            on.Died: watch.died,
            on.Fenced: watch.fenced,
            on.TimePassed: timer.passed,
        }

    def handle(self, event: on.Event, now_ns: int) -> list[do.Action]:
        """Returns what to do, in order, after `event` at now_ns.

        The clock should be monotonic.  Time that jumps back, or far ahead, is not counted.  An
        event of a lease that is not on the device changes nothing.
        """
        out, timer, token = self._out, self._timer, self._token
        out.clear()
        now = self._clocks.advance(now_ns, timer.due, self.params.jump_ns)
        self._handlers[type(event)](event, now)
        if timer.due is not None and timer.due <= now:
            self._demand.resume_throttled(now)
            self._watch.look(now)
        if token.holding is None and token.fencing is None:
            self._picker.pick(now)
        timer.announce(now)
        return out.copy()

    def expect_hand_overs(self, hand_over_ns: int) -> None:
        """Fits the slices of steady work to the measured duration of a hand-over."""
        self._slices.expect_hand_overs(hand_over_ns)

    def next_wake(self) -> int | None:
        """When to hand in `TimePassed`; None while only other events can change anything."""
        due = self._timer.due
        return None if due is None else self._clocks.outside(due)

    def usage(self, lease: str) -> Usage | None:
        """What a lease used and waited for up to the last event; None if it is not here."""
        unit = self._book.get(lease)
        if unit is None:
            return None
        now = self._clocks.now
        credit = self._charges.sleep_credit_ns()
        return usage_of(unit, now, self._token.device_now(now), credit)

    def leases(self) -> Iterator[str]:
        return (unit.lease for unit in self._book)

    @property
    def device_ns(self) -> int:
        """The device's own clock: time that leases held, as far as reported, and idle time."""
        return self._clocks.device_ns

    @property
    def charged_ns(self) -> int:
        """The part of `device_ns` that leases held."""
        return self._charges.charged_ns

    @property
    def queued_entries(self) -> int:
        """Entries in the queues, with stale ones; bounded by the number of leases."""
        return len(self._queues)
