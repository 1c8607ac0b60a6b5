"""The token of one device: which lease has it, and what this lease has been told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens.choosing import hold_against
from rgpu_server.core.tokens.holding import Holding, patience

if TYPE_CHECKING:
    from rgpu_server.core.tokens.clock import Clocks
    from rgpu_server.core.tokens.units import Unit
    from rgpu_server.core.tokens.waiting import Waiting


class Token:
    """At most one of these is set:

    holding: a lease has the token and may release device work.
    fencing: a lease lost the token, and its work may still run.  No lease gets the token meanwhile.

    returned: the holding whose token came back in the present event.  If its lease is picked
    again, the lease keeps its generation.
    """

    def __init__(
        self, waiting: Waiting, clocks: Clocks, out: list[do.Action], first_gen: int
    ) -> None:
        self.slices = waiting.slices
        self.params = self.slices.params
        self.holding: Holding | None = None
        self.fencing: Holding | None = None
        self.returned: Holding | None = None
        self._clocks = clocks
        self._waiting = waiting
        self._queues = waiting.queues
        self._out = out
        self._gen = first_gen
        self._serial = 0

    def held_as(self, lease: str, gen: int) -> Holding | None:
        """The holding of this lease and generation, unless it has ended."""
        holding = self.holding
        if holding is None or holding.gen != gen or holding.unit.lease != lease:
            return None
        return holding

    def held_by(self, unit: Unit) -> Holding | None:
        """The unit's holding, if the unit has the token."""
        holding = self.holding
        return holding if holding is not None and holding.unit is unit else None

    def out_with(self, unit: Unit) -> bool:
        """True if the unit has the token or is being fenced."""
        out = self.holding or self.fencing
        return out is not None and out.unit is unit

    def device_now(self, now: int) -> int:
        """The device clock, with the time that the holder has not reported yet."""
        out = self.holding or self.fencing
        return self._clocks.device_ns + (0 if out is None else now - out.since)

    def next_serial(self) -> int:
        """A number for the lease that is served now, or joins now: it comes last among equals."""
        self._serial += 1
        return self._serial

    def grant(self, unit: Unit, lent: bool, passed_on: bool, now: int) -> Holding:
        """Gives the token to a unit that has left the queues."""
        self._clocks.jumped = False
        waiting = self._queues.ready
        until_recall = not waiting and not unit.capped
        slice_ns = self.slices.next(unit, waiting, now)
        back, self.returned = self.returned, None
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
        contended_at = now if waiting else None
        self.holding = holding = Holding(
            unit, gen, granted_at, now, ends_at, lent, contended_at, passed_on
        )
        if waiting and ends_at is not None:
            holding.silent_at = ends_at + patience(self.params, holding)
        make = do.Extend if again else do.Grant
        self._out.append(make(unit.lease, gen, slice_ns, until_recall))
        return holding

    def lengthen(self, holding: Holding, ends_at: int, now: int) -> None:
        """Gives the holder another slice at the end of its present one, which is at ends_at."""
        unit = holding.unit
        slice_ns = self.slices.next(unit, self._queues.ready, now)
        holding.ends_at = ends_at + slice_ns
        holding.silent_at = holding.ends_at + patience(self.params, holding)
        self._out.append(do.Lengthen(unit.lease, holding.gen, slice_ns))

    def contend(self, holding: Holding, unit: Unit, now: int) -> None:
        """A unit begins to wait.  The holder is recalled early if the unit comes before it."""
        if holding.contended_at is None:
            holding.contended_at = now
            if holding.ends_at is not None and holding.silent_at is None:
                holding.silent_at = holding.ends_at + patience(self.params, holding)
        hold = hold_against(self.params, holding, unit, self._clocks)
        if hold is None:
            return
        at = max(now, holding.granted_at + hold)
        if holding.ends_at is None or at < holding.ends_at:
            self.recall(holding, at, now)

    def recall(self, holding: Holding, at: int, now: int) -> None:
        """Tells the holder to return at a time, unless it has been told an earlier one."""
        if holding.recall_at is not None and holding.recall_at <= at:
            return
        holding.recall_at = at
        holding.silent_at = max(at, now) + patience(self.params, holding)
        self._say_recall(holding, at)

    def _say_recall(self, holding: Holding, at: int) -> None:
        outside = self._clocks.outside(at)
        self._out.append(do.Recall(holding.unit.lease, holding.gen, outside))

    def ask(self, holding: Holding, now: int) -> None:
        """Asks whether a silent holder is alive."""
        holding.asked = True
        holding.silent_at = now + patience(self.params, holding)
        self._out.append(do.CheckAlive(holding.unit.lease, holding.gen))

    def answered(self, holding: Holding, now: int) -> None:
        """A holder that was asked for is alive.  It is told its recall once more."""
        holding.asked = False
        holding.silent_at = now + patience(self.params, holding)
        if holding.recall_at is not None:
            self._say_recall(holding, holding.recall_at)

    def put_down(self, holding: Holding) -> None:
        """The holder has returned the token."""
        self.holding, self.returned = None, holding

    def fence(self, holding: Holding, now: int) -> None:
        """Takes the token from a holder whose work may still run.  The holder counts as asleep."""
        unit = holding.unit
        self.holding, self.fencing = None, holding
        unit.wants = False
        self._waiting.leave(unit, now)
        self._out.append(do.Fence(unit.lease, holding.gen))
