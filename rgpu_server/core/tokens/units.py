"""One lease on one device, as the scheduler sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.windows import IntervalWindow

if TYPE_CHECKING:
    from rgpu_server.core.tokens.debt import Payer
    from rgpu_server.core.tokens.share import Share

PPB = 1_000_000_000


class State(Enum):
    """OFF: asleep, paused, fenced or gone.  READY: waits in the queues for the token.
    THROTTLED: wants the token, but its cap forbids it.  HOLDING: has the token.
    """

    OFF = "off"
    READY = "ready"
    THROTTLED = "throttled"
    HOLDING = "holding"


@dataclass(slots=True, eq=False)
class Unit:
    """Values of one lease.  Change `share` only by `take_share`.

    payer: the tenant that works off the debts of this lease.
    tag: the device clock up to which the request has been served.  A tag behind the device clock
        means that the lease is owed device time.
    lent_tag: device time lent to the lease, in ns x PPM per weight.
    credit: content of the cap bucket in ns x PPM, which integers hold exactly; may be negative.
    credit_at: when the bucket was last filled.
    capped_since: the cap ignores device time before this.
    slice_ns: the lease's own slice.  kernel_ns: an estimate of one kernel, 0 if there is none.
    burst_ns: device time since the lease last woke.
    serial: rises with each service; of equal leases the one that was served least recently is
        first.
    since: when the present state began.
    rate_ppb: the share by which the tag is charged, never 0.
    due: the payer counts this lease among its due leases.
    version: queue entries with another version are stale.
    lent_entry: the entry in the queue for surplus that stands for this lease.
    capped: the lease may not use the whole device.  elastic: the lease may have more than its
        request; only then its weight has an effect.
    device_ns, held_ns, waiting_ns, throttled_ns: totals for reports.
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
    lent_entry: Any = None
    grants: int = 0
    device_ns: int = 0
    held_ns: int = 0
    waiting_ns: int = 0
    throttled_ns: int = 0
    window: IntervalWindow = field(default_factory=IntervalWindow)
    capped: bool = field(init=False)
    elastic: bool = field(init=False)

    def __post_init__(self) -> None:
        self.take_share(self.share)

    def take_share(self, share: Share) -> None:
        """Gives the lease another share."""
        self.share = share
        self.capped = share.limit_ppm < PPM
        self.elastic = share.limit_ppm > share.request_ppm

    def enter(self, state: State, now: int) -> None:
        """Changes the state and books the time spent in the old one."""
        if self.state is State.READY:
            self.waiting_ns += now - self.since
        elif self.state is State.THROTTLED:
            self.throttled_ns += now - self.since
        self.since = now
        self.state = state

    def refill(self, now: int, bucket_ns: int) -> None:
        """Adds the cap credit earned up to now, at most a full bucket."""
        full = bucket_ns * PPM
        self.credit += self.share.limit_ppm * (now - self.credit_at)
        if self.credit > full:
            self.credit = full
        self.credit_at = now

    def resumes_at(self, now: int, resume_ns: int) -> int:
        """When a throttled unit has earned resume_ns."""
        return now + -((self.credit - resume_ns * PPM) // self.share.limit_ppm)
