"""The token of one device: pages are read, the scheduler decides, pages are written."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.tokens.draining import Draining
from rgpu_server.tokens.fence import Fence
from rgpu_server.tokens.health import Health
from rgpu_server.tokens.page import Phase
from rgpu_server.tokens.seats import STALE_NS
from rgpu_server.tokens.switching import Switching

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_server.core.tokens.share import Share
    from rgpu_server.tokens.fence import Tell
    from rgpu_server.tokens.page import Demand
    from rgpu_server.tokens.seats import Seat

log = logging.getLogger("rgpu.tokens")

MS = 1_000_000
# The loop ends a slice at the latest so long after its end, even if the holder reports nothing.
_SHOW_MARGIN_NS = 20 * MS
_ABSENT_FIRST_NS = 250 * MS
_ABSENT_MOST_NS = 2000 * MS
# The time from a grant until the first kernel of the new holder runs.
_BEGIN_NS = 100_000
# A worker reports when its work had left the device, and the loop looks a little later.  The loop
# believes a time that lies at most so long in the past, or an eighth of the turn if that is longer.
# So a worker that lies saves at most the price of that time.
_TRUSTED_NS = 1 * MS


class DeviceTokens:
    """Times are ns of the machine's monotonic clock, which workers use too."""

    def __init__(
        self,
        max_kernel_ns: int,
        tell: Tell,
        params: TokenParams | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.scheduler = TokenScheduler(
            replace(params or TokenParams(), drain_limit_ns=max_kernel_ns)
        )
        self.seats: dict[str, Seat] = {}
        self.holder: Seat | None = None
        self.health = Health()
        self.switching = Switching(self.health.handovers)
        self.max_kernel_ns = max_kernel_ns
        self._tell = tell
        self._clock = clock
        # The sum of all jumps of the clock.  The scheduler's times leave them out.
        self._slipped = 0
        # The time at which the loop plans to look again.
        self.looks_at: int | None = None
        self._events: deque[on.Event] = deque()
        self._feeding = False
        self._started = False
        self._prepared: Seat | None = None
        self._recall_at: int | None = None
        self._show_at: int | None = None
        self._fence: tuple[Fence, int] | None = None
        self._draining = Draining(max_kernel_ns, tell)
        # One row per action type: the method that carries it out.
        self._doers: dict[type[Any], Callable[[Any], None]] = {
            do.Grant: self._grant,
            do.Extend: self._grant,
            do.Lengthen: self._lengthen,
            do.Recall: self._recall,
            do.Prepare: self._prepare,
            do.CheckAlive: self._check_alive,
            do.Fence: self._begin_fence,
            do.Audit: self._nothing,
            do.TimerAt: self._nothing,
            do.Refused: self._refused,
        }

    # Leases come, change and go

    def add(self, seat: Seat) -> None:
        """A lease comes to the device."""
        self.seats[seat.lease] = seat
        said = seat.token.read()
        seat.generation = said.generation
        if said.phase not in (Phase.NONE, Phase.PREPARE):
            seat.say(Phase.RECALLED)
            if not self._started:
                self._draining.add(seat)
        if seat not in self._draining:
            seat.say(Phase.NONE)
        self._feed(on.Joined(seat.lease, seat.share, seat.tenant))
        if seat.paused:
            self._feed(on.Paused(seat.lease))
        if self._started:
            self.look(seat)

    def reshape(self, seat: Seat, share: Share, paused: bool) -> None:
        """Changes a lease's share, and whether it is paused."""
        if share != seat.share:
            seat.share = share
            self._feed(on.Resized(seat.lease, share))
        if paused != seat.paused:
            seat.paused = paused
            self._feed(on.Paused(seat.lease) if paused else on.Resumed(seat.lease))

    def remove(self, seat: Seat) -> None:
        """The lease is gone, with all its workers."""
        self._feed(on.Left(seat.lease))
        self.seats.pop(seat.lease, None)
        if self._prepared is seat:
            self._prepared = None
        if self._fence is not None and self._fence[0].seat is seat:
            (_, gen), self._fence = self._fence, None
            self._feed(on.Fenced(seat.lease, gen))
        if self._draining.drop(seat) and self._started:
            self._look_at_all()

    def start(self) -> None:
        """All leases have been added: grants may begin."""
        self._started = True
        self._draining.look_at_all()
        if not self._draining:
            self._look_at_all()

    # What the pages say

    def look(self, seat: Seat) -> None:
        """A worker of the lease signalled, came or went."""
        if self._draining or not self._started:
            if self._draining.look(seat) and self._started:
                self._look_at_all()
        elif self._fence is not None and self._fence[0].seat is seat:
            self._look_fenced()
        elif seat is self.holder:
            self._look_holder(seat)
        else:
            wants = seat.demand().wanting > 0
            if wants != seat.awake:
                seat.awake = wants
                self._feed(on.Woke(seat.lease) if wants else on.Slept(seat.lease))

    def _look_holder(self, seat: Seat) -> None:
        said = seat.demand()
        if said.active:
            if said.near_end and not seat.near_told:
                seat.near_told = True
                self._near_end(seat, said)
            if said.spent and seat.phase is Phase.SLICE:
                # One process of the lease has used up the slice: the others stop at its end.
                self._recall_from(seat, seat.start_ns + seat.slice_ns)
        elif seat.phase is Phase.RECALLED:
            self._returned(seat, said)
        elif seat.phase is Phase.SLICE and (said.spent or not said.wanting):
            self._take_back(seat)

    def _near_end(self, seat: Seat, said: Demand) -> None:
        # The rest of a capped lease's budget is known only when all work of the slice is measured.
        uncapped = seat.share.limit_ppm == PPM
        slices = seat.phase is Phase.SLICE and uncapped and self._recall_at is None
        if slices:
            held, busy = seat.report(self._clock(), said)
            self._feed(on.Progressed(seat.lease, seat.gen, held, busy))
        self._feed(on.NearEnd(seat.lease, seat.gen, slices))

    def _take_back(self, seat: Seat, absent: bool = False) -> None:
        """Ends the lease's turn: at once if no worker of it is active, else when its work is done.

        The loop writes RECALLED, and then reads which workers are active.  A worker that is not
        active then starts no work: it sets `active_gen`, reads the page again, and finds RECALLED.
        """
        seat.say(Phase.RECALLED)
        said = seat.demand()
        if not said.active:
            self._returned(seat, said, absent)

    def _returned(self, seat: Seat, said: Demand, absent: bool = False) -> None:
        now = self._clock()
        used = seat.phase is not Phase.OPEN and seat.start_ns <= said.drained_ns <= now
        # The loop sees only now that the device is free; the worker reports when it was.  If the
        # loop is late (`late`: it was stopped, or had no processor), it believes that much more.
        late = 0 if self.looks_at is None else max(now - self.looks_at, 0)
        trusted = max(_TRUSTED_NS, (now - seat.start_ns) // 8, late)
        until = max(said.drained_ns, now - trusted) if used else now
        held, busy = seat.report(until, said)
        self._put_down(seat)
        if not absent:
            seat.absent, seat.retry_at = 0, None
        empty = said.wanting == 0 or seat.retry_at is not None
        seat.awake = not empty
        event = on.Returned(seat.lease, seat.gen, held, busy, empty, said.kernel_us * 1000)
        self.switching.free(until, said.drained_ns if used else None)
        self._feed(event)
        self.switching.decided()
        if seat is not self.holder:
            seat.say(Phase.NONE)

    def _put_down(self, seat: Seat) -> None:
        if self.holder is seat:
            self.holder = self._recall_at = self._show_at = None
        self.switching.put_down(seat)

    # Time

    def due(self) -> int | None:
        """Returns the time at which `act` must be called; None: nothing is due."""
        times = (self._wake_at(), self._recall_at, self._show_at)
        return min((t for t in times if t is not None), default=None)

    def _wake_at(self) -> int | None:
        wake = self.scheduler.next_wake()
        return None if wake is None else wake + self._slipped

    def act(self, now: int) -> None:
        """Carries out what is due at `now`."""
        if self._recall_at is not None and self._recall_at <= now and self.holder is not None:
            self._recall_at = None
            self._take_back(self.holder)
        if self._show_at is not None and self._show_at <= now and self.holder is not None:
            self._show_at = None
            self._absent(self.holder, now)
        wake = self._wake_at()
        if wake is not None and wake <= now:
            self._feed(on.TimePassed())

    def slip(self, by: int) -> None:
        """The clock jumped forward by `by`, or the loop did not run for so long.

        All times in the future move by `by`.  No lease is charged for `by`.  A holder whose work
        ended meanwhile has written `drained_ns` by now.
        """
        self._slipped += by
        for seat in self.seats.values():
            seat.since_ns += by
            seat.retry_at = None if seat.retry_at is None else seat.retry_at + by
        if self._recall_at is not None:
            self._recall_at += by
        if self._show_at is not None:
            self._show_at += by
        self._draining.slip(by)
        if self._fence is not None:
            self._fence[0].slip(by)

    def tick(self, now: int) -> None:
        """Several times a second: whatever needs no precision."""
        for seat in self.seats.values():
            if seat.retry_at is not None and seat.retry_at <= now:
                seat.retry_at = None
                self.look(seat)
        if self.switching.typical_ns is not None:
            self.scheduler.expect_hand_overs(self.switching.typical_ns + _BEGIN_NS)
        holder = self.holder
        told = None if holder is None else holder.progress(now)
        if holder is not None and told is not None:
            self._feed(on.Progressed(holder.lease, holder.gen, *told))
        if self._fence is not None:
            self._fence[0].press(now)
            self._look_fenced()
        if self._draining.press(now) and self._started:
            self._look_at_all()

    def _absent(self, seat: Seat, now: int) -> None:
        """The slice is over; a holder that has not begun (its processes may be stopped) gives way,
        and is offered the device less and less often until it signals.  One that has begun may
        have a process that waits for another one of its own: it ends with what is in flight.
        """
        if seat.phase is not Phase.SLICE:
            return
        if seat.demand().active:
            self._take_back(seat)
            return
        if seat.absent:
            wait = _ABSENT_FIRST_NS << min(seat.absent - 1, 8)
            seat.retry_at = now + min(wait, _ABSENT_MOST_NS)
        seat.absent += 1
        self._take_back(seat, absent=True)

    # Actions

    def _feed(self, event: on.Event) -> None:
        """Handles an event and everything that follows from it, in order."""
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        began = self._clock()
        try:
            while self._events:
                now = self._clock() - self._slipped
                for action in self.scheduler.handle(self._events.popleft(), now):
                    self._doers[type(action)](action)
        finally:
            self._feeding = False
            self.health.decisions.add(self._clock() - began)

    def _grant(self, action: do.Grant | do.Extend) -> None:
        seat = self.seats[action.lease]
        seat.gen = action.gen
        now = self._clock()
        if action.until_recall:
            self._show_at = None
            seat.grant(Phase.OPEN, now, 0)
        else:
            self._show_at = now + action.slice_ns + _SHOW_MARGIN_NS
            seat.grant(Phase.SLICE, now, action.slice_ns)
        self.holder, self._recall_at = seat, None
        self.switching.granted(seat, now)
        prepared, self._prepared = self._prepared, None
        if prepared is not None and prepared is not seat:
            prepared.say(Phase.NONE)

    def _lengthen(self, action: do.Lengthen) -> None:
        seat = self.holder
        if seat is not None and seat.gen == action.gen and seat.phase is Phase.SLICE:
            seat.lengthen(action.slice_ns)
            self._show_at = seat.start_ns + seat.slice_ns + _SHOW_MARGIN_NS

    def _recall(self, action: do.Recall) -> None:
        seat = self.holder
        if seat is None or seat.gen != action.gen or seat.phase is Phase.RECALLED:
            return
        said = seat.demand()
        at = action.at_ns + self._slipped
        self._recall_from(seat, at if said.active or said.wanting else 0)

    def _recall_from(self, seat: Seat, at_ns: int) -> None:
        """Takes the device back then, or earlier if that has been said before."""
        if at_ns <= self._clock():
            self._recall_at = None
            self._take_back(seat)
        elif self._recall_at is None or at_ns < self._recall_at:
            self._recall_at = at_ns

    def _prepare(self, action: do.Prepare) -> None:
        seat = self.seats.get(action.lease)
        if seat is None or seat is self.holder or seat is self._prepared:
            return
        if self._prepared is not None:
            self._prepared.say(Phase.NONE)
        self._prepared = seat
        seat.say(Phase.PREPARE)

    def _check_alive(self, action: do.CheckAlive) -> None:
        seat = self.holder
        if seat is None or seat.gen != action.gen:
            return
        said = seat.demand()
        lives = not said.active or self._clock() - said.oldest_alive_ns <= STALE_NS
        answer = on.Alive if lives else on.Lost
        self._events.append(answer(seat.lease, seat.gen))

    def _begin_fence(self, action: do.Fence) -> None:
        seat = self.seats[action.lease]
        self._put_down(seat)
        seat.awake, seat.absent, seat.retry_at = False, 0, None
        self.health.fenced += 1
        self._fence = (Fence(seat, self.max_kernel_ns, self._tell), action.gen)
        self._look_fenced()

    def _refused(self, action: do.Refused) -> None:
        """The daemon admits leases; should it admit too much, the lease still gets what fits."""
        seat = self.seats.get(action.lease)
        self._tell(0, f"lease {action.lease} asks for {action.over_ppm} ppm more than its device "
                   f"has; {action.fits_ppm} ppm are guaranteed to it")  # fmt: skip
        if seat is not None:
            seat.share = replace(seat.share, request_ppm=action.fits_ppm)
            self._events.append(on.Joined(seat.lease, seat.share, seat.tenant))

    def _nothing(self, action: do.Action) -> None:
        """The loop asks `due` before it sleeps; what an audit counts has been charged."""

    def _look_fenced(self) -> None:
        if self._fence is None or not self._fence[0].done():
            return
        (fence, gen), self._fence = self._fence, None
        seat = fence.seat
        self._feed(on.Fenced(seat.lease, gen))
        if seat is not self.holder:
            seat.say(Phase.NONE)
        if seat.lease in self.seats:
            self.look(seat)

    def _look_at_all(self) -> None:
        for seat in list(self.seats.values()):
            self.look(seat)
