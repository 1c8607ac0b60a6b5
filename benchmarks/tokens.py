"""How long the token scheduler takes to decide, with 2, 20 and 200 leases on a device.

python -m benchmarks.tokens [--quick] [--json FILE]

The scheduler is deterministic.  So the same decisions are made several times, and the shortest time
of each one counts: the longer ones were disturbed by other programs.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.harness import Row, arguments, below, cost, report, say
from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share

if TYPE_CHECKING:
    from collections.abc import Callable

MS = 1_000_000
PAYERS = {"": "each its payer", "one": "one payer"}
_REPEATS = 5


def decisions(leases: int, count: int, payer: str) -> list[int]:
    """Times in ns of `count` decisions: a slice comes back and the next one is given.

    Every lease wants the device; half of them are capped above their request, so that buckets and
    timers take part.  payer: the payer of all leases; empty: each lease pays for itself.
    """
    tokens = TokenScheduler()
    request = PPM // leases
    for n in range(leases):
        limit = min(2 * request, PPM) if n % 2 else PPM
        tokens.handle(on.Joined(f"lease-{n}", Share(request, limit), payer), 0)
    holder: do.Grant | do.Extend | None = None
    for n in range(leases):
        for action in tokens.handle(on.Woke(f"lease-{n}"), 0):
            holder = action if isinstance(action, do.Grant) else holder
    now, times = 0, []
    clock = time.perf_counter_ns
    while len(times) < count:
        assert holder is not None
        now += holder.slice_ns
        back = on.Returned(holder.lease, holder.gen, holder.slice_ns, holder.slice_ns, False)
        start = clock()
        actions = tokens.handle(back, now)
        times.append(clock() - start)
        holder = next((a for a in actions if isinstance(a, do.Grant | do.Extend)), None)
        while holder is None:
            due = tokens.next_wake()
            assert due is not None
            now = due
            later = tokens.handle(on.TimePassed(), now)
            holder = next((a for a in later if isinstance(a, do.Grant | do.Extend)), None)
    return times


def wakes(leases: int, count: int) -> list[int]:
    """Times in ns of a lease that wakes while another one holds the token."""
    tokens = TokenScheduler()
    for n in range(leases):
        tokens.handle(on.Joined(f"lease-{n}", Share(PPM // leases)), 0)
        tokens.handle(on.Woke(f"lease-{n}"), 0)
    times = []
    clock = time.perf_counter_ns
    for n in range(count):
        lease = f"lease-{1 + n % (leases - 1)}"
        tokens.handle(on.Slept(lease), n)
        event = on.Woke(lease)
        start = clock()
        tokens.handle(event, n)
        times.append(clock() - start)
    return times


def percentiles(measure: Callable[[], list[int]]) -> tuple[float, float]:
    """Median and 99th percentile in us."""
    gc.collect()
    times = sorted(map(min, zip(*(measure() for _ in range(_REPEATS)), strict=True)))
    return statistics.median(times) / 1e3, times[len(times) * 99 // 100] / 1e3


def rows(leases: int, count: int, few: dict[str, float]) -> list[Row]:
    """few: the medians with two leases by payer, to which the others are compared."""
    made = []
    for payer, words in PAYERS.items():
        middle, tail = percentiles(partial(decisions, leases, count, payer))
        name = f"{leases} leases, {words}"
        made += [
            below(f"{name}, p50", "us", middle, 50),
            cost(f"{name}, p50 to 2", "us", middle, few.setdefault(payer, middle), 2),
            cost(f"{name}, p99 to p50", "us", tail, middle, 5),
        ]
    woken, _ = percentiles(partial(wakes, leases, count))
    return [*made, below(f"{leases} leases, a wake, p50", "us", woken, 50)]


def main() -> int:
    options = arguments(__doc__ or "")
    count = 5_000 if options.quick else 40_000
    figures: list[Row] = []
    few: dict[str, float] = {}
    for leases in (2, 20, 200):
        say(f"{leases} leases")
        figures += rows(leases, count, few)
    report("tokens", figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
