"""One lease on one device, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.windows import IntervalWindow

if TYPE_CHECKING:
    from rgpu_server.core.tokens.debt import Payer
    from rgpu_server.core.tokens.share import Share

PPB = 1_000_000_000


class State(Enum):
    """OFF: asleep, paused, fenced or gone.  READY: in both queues of candidates.  THROTTLED: at its
    cap.  HOLDING: has the token.
    """

    OFF = "off"
    READY = "ready"
    THROTTLED = "throttled"
    HOLDING = "holding"


@dataclass(slots=True, eq=False)
class Unit:
    """payer: who has to work off what it owes.  due: the payer counts it among its due leases.
    rate_ppb: the share that the tag is charged by, never 0.
    tag: device clock up to which the request has been served; behind the clock means owed.
    lent_tag: the same for surplus, per weight, in device ns x PPM.
    credit: cap bucket in ns x PPM, exact in integers; may be negative.  capped_since: what it did
    before does not count for the cap.
    kernel_ns: estimate of one kernel.  burst_ns: device time since it last woke.
    version: queue entries with another one are stale.  serial: order of last service.
    since: when the state began; waiting, throttled, device and held are totals of ns for reports.
    """

    lease: str
    payer: Payer
    share: Share
    tag: int
    lent_tag: int
    credit: int
    credit_at: int
    slice_ns: int
    serial: int
    since: int
    capped_since: int = 0
    rate_ppb: int = 1
    kernel_ns: int = 0
    burst_ns: int = 0
    wants: bool = False
    paused: bool = False
    gone: bool = False
    due: bool = False
    state: State = State.OFF
    version: int = 0
    grants: int = 0
    device_ns: int = 0
    held_ns: int = 0
    waiting_ns: int = 0
    throttled_ns: int = 0
    window: IntervalWindow = field(default_factory=IntervalWindow)

    @property
    def capped(self) -> bool:
        return self.share.limit_ppm < PPM

    @property
    def elastic(self) -> bool:
        """Whether it may have more than its request; only then its weight counts."""
        return self.share.limit_ppm > self.share.request_ppm

    def enter(self, state: State, now: int) -> None:
        """Changes the state and books the time spent in the old one."""
        if self.state is State.READY:
            self.waiting_ns += now - self.since
        elif self.state is State.THROTTLED:
            self.throttled_ns += now - self.since
        self.since = now
        self.state = state

    def refill(self, now: int, bucket_ns: int) -> None:
        """Earns cap credit up to now."""
        earned = self.credit + self.share.limit_ppm * (now - self.credit_at)
        self.credit = min(bucket_ns * PPM, earned)
        self.credit_at = now

    def resumes_at(self, now: int, resume_ns: int) -> int:
        """When a throttled unit has earned resume_ns."""
        return now + -((self.credit - resume_ns * PPM) // self.share.limit_ppm)

    def measure(self, busy_ns: int, empty: bool, base_ns: int, clamp: tuple[int, int]) -> None:
        """Fits the slice to the bursts.

        A burst is a sample when it ends.  One that outgrows the largest slice is a stream of work,
        to which the base slice fits.
        """
        self.burst_ns += busy_ns
        low, high = clamp
        if empty:
            self.slice_ns = min(max((self.burst_ns + self.slice_ns) // 2, low), high)
            self.burst_ns = 0
        elif self.burst_ns > high:
            self.slice_ns = min(max((base_ns + self.slice_ns) // 2, low), high)
