"""What a stretch of holding costs the holder, in its tags and its cap bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens.units import PPB

if TYPE_CHECKING:
    from rgpu_server.core.tokens.clock import Clocks
    from rgpu_server.core.tokens.holding import Holding
    from rgpu_server.core.tokens.params import TokenParams


class Charges:
    """longest_ns: the longest recent hold among others; it decays, and bounds the sleep credit
    from below.  charged_ns: the sum of all charges, which is the device clock minus idle time.
    """

    def __init__(self, params: TokenParams, clocks: Clocks) -> None:
        self._params = params
        self._clocks = clocks
        self.longest_ns = 0
        self.charged_ns = 0

    def sleep_credit_ns(self) -> int:
        """How far behind the device clock a tag may be that nobody kept waiting."""
        params = self._params
        least = max(params.sleep_credit_ns, 2 * self.longest_ns)
        return min(least, max(params.sleep_credit_ns, params.sleep_credit_max_ns))

    def charge(self, holding: Holding, held_ns: int, busy_ns: int) -> None:
        """Books held_ns, of which the device worked busy_ns, and starts the next stretch.

        Occupancy counts while others wait, work while nobody does; the cap always counts work.
        """
        clocks, unit = self._clocks, holding.unit
        now = clocks.now
        clocks.device_ns += held_ns
        self.charged_ns += held_ns
        waited = 0 if holding.contended_at is None else now - holding.contended_at
        if holding.ends_at is None:
            self._charge_run(holding, busy_ns, min(held_ns, waited))
        else:
            holding.run_ns += held_ns
            use = busy_ns if holding.contended_at is None else held_ns
            self._charge_tags(holding, use)
        if holding.contended_at is None or holding.ends_at is None:
            # Nobody kept it waiting, so it is owed no more than a sleeper.
            unit.payer.forgo(unit, clocks.device_ns - self.sleep_credit_ns())
        unit.device_ns += busy_ns
        unit.held_ns += held_ns
        unit.window.add(now - held_ns, now, busy_ns)
        if unit.capped:
            # The debit comes first: else what was earned during a long kernel is clipped.
            unit.credit -= min(busy_ns, now - unit.capped_since) * PPM
            unit.refill(now, self._params.bucket_ns)
        holding.since = now

    def _charge_tags(self, holding: Holding, use_ns: int) -> None:
        unit = holding.unit
        tag = unit.tag + use_ns * PPB // unit.rate_ppb
        if not holding.lent:
            unit.payer.retag(unit, tag)
            return
        if holding.passed_on:
            unit.payer.serve_lent(unit, tag)
        if not holding.among_siblings:
            unit.lent_tag += use_ns * PPM // unit.share.weight

    def _charge_run(self, holding: Holding, busy_ns: int, waited_ns: int) -> None:
        """A run until recall, of which another one waited for the last waited_ns.

        Alone it uses up what it is owed and never comes into debt.  The rest costs like a slice
        picked when the other one came.
        """
        unit = holding.unit
        holding.run_ns += waited_ns
        came = self._clocks.device_ns - waited_ns
        paid = unit.tag + max(busy_ns - waited_ns, 0) * PPB // unit.rate_ppb
        unit.payer.forgo(unit, min(paid, came))
        if unit.payer.claim(unit) <= came:
            unit.payer.retag(unit, unit.tag + waited_ns * PPB // unit.rate_ppb)
        else:
            unit.lent_tag += waited_ns * PPM // unit.share.weight

    def ended(self, holding: Holding) -> None:
        """The slice is over: its length counts for the sleep credit."""
        self.longest_ns = max(self.longest_ns * 999 // 1000, holding.run_ns)


def believable(holding: Holding, held_ns: int, busy_ns: int, clocks: Clocks) -> tuple[int, int]:
    """A report that cannot be true is cut to what can, unless our own clock was at fault.

    A run until recall held the device all the time, also where it was idle: who came in the
    meantime was placed by that, and would not be owed for long if less counted.
    """
    held, whole = max(held_ns, 0), clocks.now - holding.since
    if holding.ends_at is None:
        held = max(held, whole)
    if not clocks.jumped or whole > 0:
        held = min(held, whole)
    return held, min(max(busy_ns, 0), held)
