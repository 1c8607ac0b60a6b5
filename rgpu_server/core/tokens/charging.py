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
    """longest_ns: the longest recent hold while other leases waited.  It decays, and the sleep
    credit is at least twice as long.
    charged_ns: the sum of all charges, which is the device clock minus idle time.
    """

    def __init__(self, params: TokenParams, clocks: Clocks) -> None:
        self.clocks = clocks
        self._params = params
        self.longest_ns = 0
        self.charged_ns = 0

    def sleep_credit_ns(self) -> int:
        """How far behind the device clock the tag of a lease may be that was not kept waiting."""
        params = self._params
        least = max(params.sleep_credit_ns, 2 * self.longest_ns)
        return min(least, max(params.sleep_credit_ns, params.sleep_credit_max_ns))

    def report(self, holding: Holding, held_ns: int, busy_ns: int) -> int:
        """Charges what the holder says as far as it can be true, and returns its device time.

        A report is cut to the time that has passed, unless the scheduler's own clock jumped.
        """
        whole = self.clocks.now - holding.since
        if holding.ends_at is None and held_ns < whole:
            # A run until recall held the device all the time, also while it was idle.  Leases that
            # joined during the run were placed by that time, so the whole time is charged.
            held_ns = whole
        elif held_ns < 0:
            held_ns = 0
        if held_ns > whole and (whole > 0 or not self.clocks.jumped):
            held_ns = whole
        if busy_ns < 0:
            busy_ns = 0
        elif busy_ns > held_ns:
            busy_ns = held_ns
        self.charge(holding, held_ns, busy_ns)
        self.clocks.jumped = False
        return busy_ns

    def charge(self, holding: Holding, held_ns: int, busy_ns: int) -> None:
        """Books held_ns, of which the device worked busy_ns, and starts the next stretch.

        The tags are charged the time held while other leases wait, and only the device time while
        no lease does.  The cap is always charged the device time.
        """
        clocks, unit = self.clocks, holding.unit
        now, contended_at = clocks.now, holding.contended_at
        clocks.device_ns += held_ns
        self.charged_ns += held_ns
        if holding.ends_at is None:
            waited = 0 if contended_at is None else now - contended_at
            self._charge_run(holding, busy_ns, min(held_ns, waited))
        else:
            holding.run_ns += held_ns
            use = busy_ns if contended_at is None else held_ns
            tag = unit.tag + use * PPB // unit.rate_ppb
            if holding.lent:
                self._charge_lent(holding, tag, use)
            else:
                unit.payer.retag(unit, tag)
        if contended_at is None or holding.ends_at is None:
            # Nobody kept the holder waiting, so it is owed no more than a sleeper.
            unit.payer.forgo(unit, clocks.device_ns - self.sleep_credit_ns())
        unit.device_ns += busy_ns
        unit.held_ns += held_ns
        unit.window.add(now - held_ns, now, busy_ns)
        if unit.capped:
            # The debit comes first: otherwise a full bucket would earn nothing in a long kernel.
            unit.credit -= min(busy_ns, now - unit.capped_since) * PPM
            unit.refill(now, self._params.bucket_ns)
        holding.since = now

    def _charge_lent(self, holding: Holding, tag: int, use_ns: int) -> None:
        """Charges surplus.  tag: where the holder's tag would be if it had used its request."""
        unit = holding.unit
        if holding.passed_on:
            unit.payer.serve_lent(unit, tag)
        if not holding.among_siblings:
            unit.lent_tag += use_ns * PPM // unit.share.weight

    def _charge_run(self, holding: Holding, busy_ns: int, waited_ns: int) -> None:
        """Charges a run until recall; another lease waited during its last waited_ns.

        The time before that uses up what the holder is owed, and never makes a debt.  The last
        waited_ns cost as much as a slice that was picked when the other lease came.
        """
        unit = holding.unit
        holding.run_ns += waited_ns
        came = self.clocks.device_ns - waited_ns
        paid = unit.tag + max(busy_ns - waited_ns, 0) * PPB // unit.rate_ppb
        unit.payer.forgo(unit, min(paid, came))
        if unit.payer.claim(unit) <= came:
            unit.payer.retag(unit, unit.tag + waited_ns * PPB // unit.rate_ppb)
        else:
            unit.lent_tag += waited_ns * PPM // unit.share.weight

    def ended(self, holding: Holding) -> None:
        """The slice is over: its length counts for the sleep credit."""
        self.longest_ns = self.longest_ns * 999 // 1000
        if self.longest_ns < holding.run_ns:
            self.longest_ns = holding.run_ns
