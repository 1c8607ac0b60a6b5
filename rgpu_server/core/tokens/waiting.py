"""The way of a lease into the queues and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.units import State

if TYPE_CHECKING:
    from rgpu_server.core.tokens.queues import ReadyQueues
    from rgpu_server.core.tokens.slices import Slices
    from rgpu_server.core.tokens.units import Unit


class Waiting:
    """Knows the states OFF, READY and THROTTLED; only `Picker` makes a unit HOLDING."""

    __slots__ = ("queues", "slices")

    def __init__(self, queues: ReadyQueues, slices: Slices) -> None:
        self.queues = queues
        self.slices = slices

    def enter(self, unit: Unit, now: int) -> None:
        """The unit wants the device: it is ready, or throttled while its cap bucket is empty.

        A unit that waits already is entered anew, because its place may have changed.
        """
        queues = self.queues
        if unit.capped:
            params = self.slices.params
            unit.refill(now, params.bucket_ns)
            if unit.credit < params.thin_ns * PPM:
                resumes_at = unit.resumes_at(now, self.slices.resume_credit_ns)
                queues.remove(unit)
                queues.push_throttled(unit, resumes_at)
                unit.enter(State.THROTTLED, now)
                return
        queues.take(unit)
        unit.enter(State.READY, now)
        queues.push_ready(unit)

    def move(self, unit: Unit, now: int) -> None:
        """The tag of a ready unit has changed.  The caller must `offer` its payer, which for many
        units of one payer needs to be done only once.
        """
        if unit.capped:
            self.enter(unit, now)
        else:
            self.queues.retag(unit)

    def leave(self, unit: Unit, now: int) -> None:
        """The unit does not want the device, or may not have it."""
        unit.payer.sleep(unit)
        self.queues.remove(unit)
        unit.enter(State.OFF, now)
