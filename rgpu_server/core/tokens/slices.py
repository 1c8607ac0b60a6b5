"""How long a lease may hold the device at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.params import base_slice, resume_credit

if TYPE_CHECKING:
    from rgpu_server.core.tokens.params import TokenParams
    from rgpu_server.core.tokens.units import Unit


class Slices:
    """base_ns: the slice of a lease that always has work.
    resume_credit_ns: the cap credit at which a throttled lease runs again.
    """

    __slots__ = ("base_ns", "params", "resume_credit_ns")

    def __init__(self, params: TokenParams) -> None:
        self.params = params
        self._use(params.slice_base_ns)

    def expect_hand_overs(self, hand_over_ns: int) -> None:
        """Fits the base slice to the measured duration of a hand-over."""
        self._use(base_slice(self.params, hand_over_ns))

    def _use(self, base_ns: int) -> None:
        self.base_ns = base_ns
        self.resume_credit_ns = resume_credit(self.params, base_ns)

    def next(self, unit: Unit, waiting: int, now: int) -> int:
        """The next slice of a unit, in ns: its own slice, or less when many leases wait.

        The slice of a capped unit ends when its credit is used up, counting the credit that the
        unit earns during the slice.  A shorter slice would only cause another one.
        """
        params = self.params
        slice_ns = params.crowd_ns // (waiting + 1)
        if slice_ns < params.slice_min_ns:
            slice_ns = params.slice_min_ns
        if unit.slice_ns < slice_ns:
            slice_ns = unit.slice_ns
        if unit.capped:
            unit.refill(now, params.bucket_ns)
            left = unit.credit // (PPM - unit.share.limit_ppm)
            if left < slice_ns:
                slice_ns = max(1, left)
        return slice_ns

    def measure(self, unit: Unit, busy_ns: int, empty: bool) -> None:
        """Fits the unit's own slice to its bursts of work.

        A burst is a sample when it ends (empty).  A burst longer than the largest slice is steady
        work, to which the base slice fits.
        """
        params = self.params
        unit.burst_ns += busy_ns
        if empty:
            sample = unit.burst_ns
            unit.burst_ns = 0
        elif unit.burst_ns > params.slice_max_ns:
            sample = self.base_ns
        else:
            return
        fitted = (sample + unit.slice_ns) // 2
        if fitted < params.slice_min_ns:
            fitted = params.slice_min_ns
        elif fitted > params.slice_max_ns:
            fitted = params.slice_max_ns
        unit.slice_ns = fitted
