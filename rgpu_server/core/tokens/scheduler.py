"""The token of one device: one event in, the actions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.book import UnitBook
from rgpu_server.core.tokens.charging import Charges, believable
from rgpu_server.core.tokens.choosing import hold_against, may_go_on, slice_for, successor
from rgpu_server.core.tokens.clock import Clocks
from rgpu_server.core.tokens.holding import Holding, patience
from rgpu_server.core.tokens.params import TokenParams, base_slice, resume_credit
from rgpu_server.core.tokens.queues import ReadyQueues
from rgpu_server.core.tokens.units import State, Unit
from rgpu_server.core.tokens.usage import Usage, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rgpu_server.core.tokens.share import Share


class TokenScheduler:
    """Decides which lease may use one device.

    `handle` alone changes anything; `next_wake` and `usage` are for the loop and for reports.
    """

    def __init__(self, params: TokenParams | None = None, first_gen: int = 0) -> None:
        """first_gen: at least every generation that an earlier daemon gave out on this device, so
        that what comes back from one of those is audited and not taken for a holder's.
        """
        self.params = params or TokenParams()
        self._base_ns = self.params.slice_base_ns
        self._clocks = Clocks()
        self._charges = Charges(self.params, self._clocks)
        self._book = UnitBook(self.params)
        self._queues = ReadyQueues()
        # Priority -> lent tag that surplus of that priority has reached.
        self._levels: dict[int, int] = {}
        self._gen = first_gen
        self._serial = 0
        self._holding: Holding | None = None
        self._fencing: Holding | None = None
        # The holding that has just returned, so that the same lease is extended.
        self._back: Holding | None = None
        self._due: int | None = None
        self._armed: int | None = None
        self._out: list[do.Action] = []
        # One row per event type: the method that handles it.
        self._handlers: dict[type[Any], Callable[[Any, int], None]] = {
            on.Joined: self._joined,
            on.Resized: self._resized,
            on.Left: self._left,
            on.Paused: self._paused,
            on.Resumed: self._resumed,
            on.Woke: self._woke,
            on.Slept: self._slept,
            on.NearEnd: self._near_end,
            on.Returned: self._returned,
            on.Progressed: self._progressed,
            on.Alive: self._alive,
            on.Lost: self._lost,
            on.Died: self._died,
            on.Fenced: self._fenced,
            on.TimePassed: self._time_passed,
        }

    def handle(self, event: on.Event, now_ns: int) -> list[do.Action]:
        """Returns what to do, in order, after `event` at now_ns.

        The clock should be monotonic; one that jumps back or far ahead is taken for a clock that
        jumped.  Events of leases that are not on the device change nothing.
        """
        self._out = out = list[do.Action]()
        now = self._clocks.advance(now_ns, self._due, self.params.jump_ns)
        self._handlers[type(event)](event, now)
        if self._due is not None and self._due <= now:
            self._act_on_time(now)
        if self._holding is None and self._fencing is None:
            self._pick(now)
        self._announce(now)
        return out

    def expect_hand_overs(self, hand_over_ns: int) -> None:
        """Fits the slices of saturated work to what a hand-over is measured to cost."""
        self._base_ns = base_slice(self.params, hand_over_ns)

    def next_wake(self) -> int | None:
        """When to hand in `TimePassed`; None while only other events can change anything."""
        return None if self._due is None else self._clocks.outside(self._due)

    def usage(self, lease: str) -> Usage | None:
        """What a lease used and waited for up to the last event; None if it is not here."""
        unit = self._book.get(lease)
        if unit is None:
            return None
        now = self._clocks.now
        credit = self._charges.sleep_credit_ns()
        return usage_of(unit, now, self._device_now(now), credit)

    def leases(self) -> Iterator[str]:
        return (unit.lease for unit in self._book)

    @property
    def device_ns(self) -> int:
        """The device's own clock: time held, as far as reported, and time idle."""
        return self._clocks.device_ns

    @property
    def charged_ns(self) -> int:
        """The part of it that leases held."""
        return self._charges.charged_ns

    @property
    def queued_entries(self) -> int:
        """Entries in the queues, stale ones too; bounded by the number of leases."""
        return len(self._queues)

    # Leases come, change and go

    def _joined(self, event: on.Joined, now: int) -> None:
        if self._book.get(event.lease) is not None:
            self._resized(on.Resized(event.lease, event.share), now)
            return
        refusal = self._book.refusal(event.lease, event.share)
        if refusal is not None:
            self._out.append(refusal)
            return
        unit = self._revived(event.lease) or self._new_unit(event, now)
        self._book.add(unit)
        self._queues.resize(len(self._book))
        self._spread_rates(now)
        self._book.restore(unit)
        if unit.share != event.share:
            self._reshape(unit, event.share, now)

    def _new_unit(self, event: on.Joined, now: int) -> Unit:
        self._serial += 1
        level = self._levels.get(event.share.priority, 0)
        payer = self._book.payer(event.payer or event.lease, self._clocks)
        payer.serial = self._serial
        return Unit(
            event.lease,
            payer,
            event.share,
            tag=self._device_now(now),
            lent_tag=level,
            credit=self.params.bucket_ns * PPM,
            credit_at=now,
            slice_ns=self._base_ns,
            serial=self._serial,
            since=now,
        )

    def _revived(self, lease: str) -> Unit | None:
        """The unit of a lease that comes back while its last holding is still being fenced."""
        fencing = self._fencing
        if fencing is None or fencing.unit.lease != lease:
            return None
        unit = fencing.unit
        unit.gone = unit.wants = unit.paused = False
        return unit

    def _resized(self, event: on.Resized, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None:
            return
        refusal = self._book.refusal(event.lease, event.share)
        if refusal is not None:
            self._out.append(refusal)
            return
        self._reshape(unit, event.share, now)

    def _reshape(self, unit: Unit, share: Share, now: int) -> None:
        """A debt or a credit keeps its device time under the new share."""
        old = unit.share
        if unit.capped:
            unit.refill(now, self.params.bucket_ns)
        else:
            unit.capped_since = unit.credit_at = now
        ahead = max(0, unit.lent_tag - self._levels.get(old.priority, 0))
        level = self._levels.get(share.priority, 0)
        unit.lent_tag = level + ahead * old.weight // share.weight
        unit.share = share
        self._spread_rates(now)
        if unit.state is State.READY:
            self._enqueue(unit, now)
        elif unit.state is State.THROTTLED:
            # The new cap may let it go now, and then it begins to wait for the holder.
            self._admit(unit, now)
        holding = self._holding
        if holding is not None and holding.unit is unit and unit.capped and holding.ends_at is None:
            self._recall(holding, now, now)

    def _left(self, event: on.Left, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None:
            return
        unit.gone = True
        self._book.remove(unit)
        self._queues.resize(len(self._book))
        if self._holding is not None and self._holding.unit is unit:
            self._fence(self._holding, now)
        elif self._fencing is None or self._fencing.unit is not unit:
            self._dequeue(unit, now)
            self._book.remember(unit, self._device_now(now))
        self._spread_rates(now)

    def _spread_rates(self, now: int) -> None:
        for unit in self._book.set_rates(self._device_now(now)):
            if unit.state is State.READY:
                self._enqueue(unit, now)
        for payer in self._book.payers:
            # Where the rates of some leases changed, others of their payer may be served earlier.
            self._queues.offer(payer)

    # Leases want and do not want

    def _woke(self, event: on.Woke, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None or unit.wants:
            return
        unit.wants = True
        self._admit(unit, now)

    def _slept(self, event: on.Slept, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is not None and unit.state is not State.HOLDING:
            unit.wants = False
            self._dequeue(unit, now)

    def _paused(self, event: on.Paused, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None or unit.paused:
            return
        unit.paused = True
        if self._holding is not None and self._holding.unit is unit:
            self._recall(self._holding, now, now)
        else:
            self._dequeue(unit, now)

    def _resumed(self, event: on.Resumed, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None or not unit.paused:
            return
        unit.paused = False
        if unit.wants:
            self._admit(unit, now)

    def _admit(self, unit: Unit, now: int) -> None:
        """A unit that was not waiting for others begins to: what it is owed is clipped here, and
        nowhere else, and its debt stays.
        """
        out = self._holding or self._fencing
        if unit.paused or (out is not None and out.unit is unit):
            return
        owed_from = self._device_now(now) - self._charges.sleep_credit_ns()
        unit.payer.settle()
        unit.tag = max(unit.tag, owed_from, unit.payer.spent_until)
        unit.lent_tag = max(unit.lent_tag, self._levels.get(unit.share.priority, 0))
        self._enqueue(unit, now)
        if unit.state is State.READY and self._holding is not None:
            self._contend(self._holding, unit, now)

    # The holder speaks

    def _near_end(self, event: on.NearEnd, now: int) -> None:
        holding = self._holding
        if holding is not None and holding.matches(event.lease, event.gen):
            unit = successor(self._queues, holding, self._clocks)
            if unit is not None:
                self._out.append(do.Prepare(unit.lease))
            elif event.may_lengthen:
                self._lengthen(holding, now)

    def _lengthen(self, holding: Holding, now: int) -> None:
        """The holder would be picked again: it goes on without giving the token back, so that the
        device does not run dry.
        """
        unit, params, waiting = holding.unit, self.params, self._queues.ready
        if holding.ends_at is None or not waiting or not may_go_on(params, holding, self._clocks):
            return
        self._charges.ended(holding)
        holding.run_ns = 0
        unit.measure(0, False, self._base_ns, (params.slice_min_ns, params.slice_max_ns))
        slice_ns = slice_for(params, unit, waiting, now)
        if holding.lent:
            self._raise_level(unit)
        holding.ends_at += slice_ns
        holding.silent_at = holding.ends_at + patience(params, holding)
        self._out.append(do.Lengthen(unit.lease, holding.gen, slice_ns))

    def _returned(self, event: on.Returned, now: int) -> None:
        holding = self._holding
        if holding is None or not holding.matches(event.lease, event.gen):
            self._out.append(do.Audit(event.lease, event.gen, event.busy_ns))
            return
        unit = holding.unit
        held, busy = believable(holding, event.held_ns, event.busy_ns, self._clocks)
        self._charges.charge(holding, held, busy)
        self._charges.ended(holding)
        unit.kernel_ns = event.kernel_ns or unit.kernel_ns
        params = self.params
        clamp = (params.slice_min_ns, params.slice_max_ns)
        unit.measure(busy, event.empty, self._base_ns, clamp)
        unit.wants = not event.empty
        self._holding, self._back = None, holding
        if unit.wants and not unit.paused:
            self._enqueue(unit, now)
        else:
            self._dequeue(unit, now)

    def _progressed(self, event: on.Progressed, now: int) -> None:
        holding = self._holding
        if holding is not None and holding.matches(event.lease, event.gen):
            held, busy = believable(holding, event.held_ns, event.busy_ns, self._clocks)
            holding.unit.burst_ns += busy
            self._charges.charge(holding, held, busy)
            self._clocks.jumped = False

    def _alive(self, event: on.Alive, now: int) -> None:
        holding = self._holding
        if holding is not None and holding.matches(event.lease, event.gen) and holding.asked:
            holding.asked = False
            holding.silent_at = now + patience(self.params, holding)
            if holding.recall_at is not None:
                at = self._clocks.outside(holding.recall_at)
                self._out.append(do.Recall(event.lease, event.gen, at))

    def _lost(self, event: on.Lost, now: int) -> None:
        holding = self._holding
        if holding is not None and holding.matches(event.lease, event.gen):
            self._fence(holding, now)

    def _died(self, event: on.Died, now: int) -> None:
        unit = self._book.get(event.lease)
        if unit is None:
            return
        if self._holding is not None and self._holding.unit is unit:
            self._fence(self._holding, now)
        else:
            unit.wants = False
            self._dequeue(unit, now)

    def _fence(self, holding: Holding, now: int) -> None:
        """What was released may still run, so nobody is granted anything until `Fenced`."""
        unit = holding.unit
        self._holding, self._fencing = None, holding
        unit.wants = False
        self._dequeue(unit, now)
        self._out.append(do.Fence(unit.lease, holding.gen))

    def _fenced(self, event: on.Fenced, now: int) -> None:
        """The time up to here is the holder's: its work could run until now."""
        fencing = self._fencing
        if fencing is None or not fencing.matches(event.lease, event.gen):
            return
        unit, held = fencing.unit, now - fencing.since
        busy = held if event.busy_ns is None else min(max(event.busy_ns, 0), held)
        self._charges.charge(fencing, held, busy)
        self._charges.ended(fencing)
        unit.burst_ns = 0
        self._fencing = None
        if unit.gone:
            self._book.remember(unit, self._clocks.device_ns)
        elif unit.wants and not unit.paused:
            self._enqueue(unit, now)

    # Time

    def _time_passed(self, event: on.TimePassed, now: int) -> None:
        """Whatever the event, what is due is done after it.  A timer that came early has been used
        up, so the next one is announced anew.
        """
        self._armed = None

    def _act_on_time(self, now: int) -> None:
        while (unit := self._queues.pop_due(now)) is not None:
            self._admit(unit, now)
        holding = self._holding
        if holding is not None and holding.silent_at is not None and holding.silent_at <= now:
            self._silent(holding, now)

    def _silent(self, holding: Holding, now: int) -> None:
        """A late holder is recalled, then asked for, then fenced."""
        if holding.recall_at is None:
            self._recall(holding, now, now)
            return
        since = max(holding.recall_at, holding.contended_at or 0)
        overdue = now - since >= self.params.drain_limit_ns
        if holding.asked or (overdue and self._queues.ready):
            self._fence(holding, now)
            return
        holding.asked = True
        holding.silent_at = now + patience(self.params, holding)
        self._out.append(do.CheckAlive(holding.unit.lease, holding.gen))

    def _announce(self, now: int) -> None:
        """Names the next time, unless a timer that comes no later has been asked for."""
        due = self._queues.throttled_until()
        holding = self._holding
        if holding is not None and holding.silent_at is not None:
            due = holding.silent_at if due is None else min(due, holding.silent_at)
        self._due = due
        if due is None:
            return
        outside, armed = self._clocks.outside(due), self._armed
        if armed is None or outside < armed or armed <= self._clocks.outside(now):
            self._armed = outside
            self._out.append(do.TimerAt(outside))

    # Who is next

    def _device_now(self, now: int) -> int:
        """The device clock, with what the holder has not reported yet."""
        out = self._holding or self._fencing
        return self._clocks.device_ns + (0 if out is None else now - out.since)

    def _enqueue(self, unit: Unit, now: int) -> None:
        queues = self._queues
        queues.leave(unit)
        if unit.capped:
            unit.refill(now, self.params.bucket_ns)
            if unit.credit < self.params.thin_ns * PPM:
                unit.enter(State.THROTTLED, now)
                credit = resume_credit(self.params, self._base_ns)
                queues.push_throttled(unit, unit.resumes_at(now, credit))
                return
        unit.enter(State.READY, now)
        queues.push_ready(unit)

    def _dequeue(self, unit: Unit, now: int) -> None:
        unit.payer.sleep(unit)
        self._queues.leave(unit)
        unit.enter(State.OFF, now)

    def _pick(self, now: int) -> None:
        """Gives the token to whoever is furthest behind its request, relative to the request; if
        nobody is owed, lends it.
        """
        back, self._back = self._back, None
        queues, clocks = self._queues, self._clocks
        payer = queues.first()
        if payer is None:
            if clocks.idle_since is None:
                clocks.idle_since = now
            return
        clocks.idle_since = None
        unit = payer.waiting.first()
        lent, passed_on = payer.opens > clocks.device_ns, None
        if lent:
            unit = queues.lent() or unit
            self._raise_level(unit)
            passed_on = unit.payer.waiting.due
        unit = passed_on or unit
        among_siblings = queues.ready == unit.payer.waiting.count
        queues.take(unit)
        unit.enter(State.HOLDING, now)
        holding = self._hand_over(unit, lent, back, now)
        holding.passed_on = passed_on is not None
        holding.among_siblings = among_siblings and holding.passed_on
        queues.offer(unit.payer)

    def _raise_level(self, unit: Unit) -> None:
        """Surplus of its priority has reached its lent tag."""
        level = self._levels.get(unit.share.priority, 0)
        self._levels[unit.share.priority] = max(level, unit.lent_tag)

    def _hand_over(self, unit: Unit, lent: bool, back: Holding | None, now: int) -> Holding:
        self._clocks.jumped = False
        contended = self._queues.ready > 0
        until_recall = not contended and not unit.capped
        slice_ns = slice_for(self.params, unit, self._queues.ready, now)
        again = back is not None and back.unit is unit
        if again and back is not None:
            gen, granted_at = back.gen, back.granted_at
        else:
            self._gen = gen = self._gen + 1
            granted_at = now
            self._serial += 1
            unit.serial = unit.payer.serial = self._serial
            unit.grants += 1
        ends_at = None if until_recall else now + slice_ns
        since = now if contended else None
        self._holding = holding = Holding(unit, gen, granted_at, now, ends_at, lent, since)
        if contended and ends_at is not None:
            holding.silent_at = ends_at + patience(self.params, holding)
        make = do.Extend if again else do.Grant
        self._out.append(make(unit.lease, gen, slice_ns, until_recall))
        return holding

    def _contend(self, holding: Holding, unit: Unit, now: int) -> None:
        """A unit begins to wait for a holder that may be cut for it."""
        if holding.contended_at is None:
            holding.contended_at = now
            if holding.ends_at is not None and holding.silent_at is None:
                holding.silent_at = holding.ends_at + patience(self.params, holding)
        hold = hold_against(self.params, holding, unit, self._clocks)
        if hold is None:
            return
        at = max(now, holding.granted_at + hold)
        if holding.ends_at is None or at < holding.ends_at:
            self._recall(holding, at, now)

    def _recall(self, holding: Holding, at: int, now: int) -> None:
        if holding.recall_at is not None and holding.recall_at <= at:
            return
        holding.recall_at = at
        holding.silent_at = max(at, now) + patience(self.params, holding)
        outside = self._clocks.outside(at)
        self._out.append(do.Recall(holding.unit.lease, holding.gen, outside))
