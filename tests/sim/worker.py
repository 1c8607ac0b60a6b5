"""A worker: releases its lease's kernels while it holds the token, and keeps the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.tokens import events as on

if TYPE_CHECKING:
    from sim.device import Device
    from sim.loads import Load

IN_FLIGHT_NS = 5_000_000
IN_FLIGHT_MAX = 16
STEP = 100_000_000


class Worker:
    """The release rule: `release while in_flight < clamp(T_inf / k, 1, 16) and (first or elapsed +
    in_flight + k / 2 <= slice)`, where k is the mean of its own kernels; one at a time until the
    first has been measured.
    """

    def __init__(self, device: Device, lease: str, load: Load) -> None:
        self.device = device
        self.lease = lease
        self.load = load
        self.kernel = 0  # moving mean of own kernels
        self.gap = 0  # moving mean of own host gaps
        self.gen = 0
        self.serial = 0
        self.holding = False
        self.silent = False
        self.dead = False
        # Of the slice.
        self.started = 0
        self.ends: int | None = None
        self.recall_at: int | None = None
        self.early_recall: tuple[int, int] | None = None
        self.busy = 0
        self.released = 0
        self.near_end_said = False
        self.flight: list[tuple[int, int]] = []
        self.idle_since = 0
        # The record.
        self.woken_at: int | None = None
        self.waits: list[int] = []
        self.bins: list[int] = []
        self.gaps: list[tuple[int, int]] = []  # (start, length) of times without service
        self.last_end = 0
        self.kernels = 0

    # The load speaks

    def poke(self) -> None:
        """There is work."""
        if self.dead:
            return
        if self.idle_since:
            idle = self.device.now - self.idle_since
            self.gap = (3 * self.gap + idle) // 4 if self.gap else idle
            self.idle_since = 0
        if self.holding:
            self.pump()
        elif self.woken_at is None:
            self.woken_at = self.device.now
            self.last_end = self.device.now
            self.device.tell(on.Woke(self.lease))

    # The scheduler speaks

    def granted(self, gen: int, slice_ns: int, until_recall: bool) -> None:
        if self.dead or gen <= self.gen:
            return
        assert not self.holding
        self.holding, self.gen = True, gen
        self._begin(slice_ns, until_recall)
        if self.early_recall is not None and self.early_recall[0] == gen:
            self.recalled(*self.early_recall)

    def extended(self, gen: int, slice_ns: int, until_recall: bool) -> None:
        if self.dead or gen != self.gen:
            return
        assert not self.holding
        self.holding = True
        # A recall of this slice may have been faster than the Extend.
        recall = self.recall_at
        self._begin(slice_ns, until_recall)
        if recall is not None and recall > self.started:
            self.recalled(gen, recall)

    def _begin(self, slice_ns: int, until_recall: bool) -> None:
        self.started = self.device.now
        self.ends = None if until_recall else self.started + slice_ns
        self.recall_at = None
        self.busy = self.released = 0
        self.near_end_said = False
        self.serial += 1
        self.pump()

    def lengthened(self, gen: int, serial: int, by: int) -> None:
        """The slice was made longer. A message about an earlier slice is ignored."""
        if self.dead or not self.holding or (gen, serial) != (self.gen, self.serial):
            return
        assert self.ends is not None
        self.ends += by
        self.near_end_said = False
        self.pump()

    def recalled(self, gen: int, at: int) -> None:
        if gen != self.gen:
            # The Recall overtook the Grant, whose hand-over takes longer.
            self.early_recall = (gen, at)
            return
        self.recall_at = at
        if self.holding:
            self.device.at(max(at, self.device.now), self._recall_due, gen, at)

    def _recall_due(self, gen: int, at: int) -> None:
        if self.holding and gen == self.gen and self.recall_at == at:
            self.pump()

    def fenced(self) -> None:
        self.holding = False
        self.woken_at = None

    # Releasing

    def pump(self) -> None:
        """Releases what may be released; returns the token when that is all."""
        if self.silent or not self.holding:
            return
        device, load, flight = self.device, self.load, self.flight
        now = device.now
        window = min(max(IN_FLIGHT_NS // self.kernel, 1), IN_FLIGHT_MAX) if self.kernel else 1
        while load.queued and self._time_left(now):
            if len(flight) >= window:
                return
            self._release(load.take(now))
        if load.queued:
            if flight:
                if not self.near_end_said:
                    self.near_end_said = True
                    self.report()
                    device.tell(on.NearEnd(self.lease, self.gen, may_lengthen=True))
            else:
                self._return(empty=False)
        elif not flight:
            self._idle(now)

    def _time_left(self, now: int) -> bool:
        end = self.ends
        if self.recall_at is not None:
            if now >= self.recall_at:
                return False
            end = self.recall_at if end is None else min(end, self.recall_at)
        if end is None or not self.released:
            return True
        return now + len(self.flight) * self.kernel + self.kernel // 2 <= end

    def _release(self, duration: int) -> None:
        device = self.device
        start, end = device.launch(self, duration)
        if self.woken_at is not None:
            self.waits.append(start - self.woken_at)
            self.woken_at = None
        if start - self.last_end > 0:
            self.gaps.append((self.last_end, start - self.last_end))
        self.last_end = end
        self.released += 1
        self.flight.append((start, end))
        self.account(start, end, 1)
        device.at(end + device.costs.notice, self._completed, self.gen, start, end)

    def _completed(self, gen: int, start: int, end: int) -> None:
        flight = self.flight
        if not flight or flight[0] != (start, end):
            return
        flight.pop(0)
        duration = end - start
        self.busy += duration
        self.kernels += 1
        self.kernel = (3 * self.kernel + duration) // 4 if self.kernel else duration
        self.load.done(self.device.now)
        self.pump()

    def _idle(self, now: int) -> None:
        """No work: keep the token for the grace, unless own gaps are known to be longer."""
        if self.ends is None and self.recall_at is None:
            self.idle_since = self.idle_since or now
            return
        grace = self.device.costs.grace
        if grace is None:
            usual = 2 * self.device.costs.handover
            grace = 0 if self.gap > usual else usual
        if not self.idle_since:
            self.idle_since = now
        if now >= self.idle_since + grace:
            self._return(empty=True)
        else:
            self.device.at(self.idle_since + grace, self._grace_over, self.gen, self.released)

    def _grace_over(self, gen: int, released: int) -> None:
        """Looks again when the grace is over. The generation and the release count keep an old
        timer from ending a later slice.
        """
        if self.holding and self.gen == gen and self.released == released and not self.flight:
            self.pump()

    def _return(self, empty: bool) -> None:
        device = self.device
        self.holding = False
        held = device.now - self.started
        device.tell(on.Returned(self.lease, self.gen, held, self.busy, empty, self.kernel))

    def report(self) -> None:
        """Reports the time used so far; the hold goes on."""
        if self.holding:
            held, busy = self.device.now - self.started, self.busy
            self.started, self.busy = self.device.now, 0
            self.device.tell(on.Progressed(self.lease, self.gen, held, busy))

    # Ends

    def kill(self) -> None:
        """Kills the process; its kernels go on until it is fenced."""
        self.dead = True
        self.holding = False
        self.device.tell(on.Died(self.lease))

    def stop_kernels(self) -> None:
        """Ends the running kernels now, because the context is gone."""
        now = self.device.now
        for start, end in self.flight:
            if end > now:
                self.account(max(start, now), end, -1)
        self.flight.clear()
        self.device.free_at = min(self.device.free_at, now)

    def revive(self) -> None:
        """A new process of the lease begins."""
        self.dead = self.silent = False
        self.holding = False
        self.woken_at = None
        if self.load.queued:
            self.poke()

    # The record

    def account(self, start: int, end: int, sign: int) -> None:
        """Counts a kernel into tenths of a second, partial ones too."""
        bins = self.bins
        first, last = start // STEP, (end - 1) // STEP
        while len(bins) <= last:
            bins.append(0)
        if first == last:
            bins[first] += sign * (end - start)
            return
        bins[first] += sign * ((first + 1) * STEP - start)
        for n in range(first + 1, last):
            bins[n] += sign * STEP
        bins[last] += sign * (end - last * STEP)
