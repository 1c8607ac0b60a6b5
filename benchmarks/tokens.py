"""How long the token scheduler takes to decide, with 2, 20 and 200 leases on a device.

python -m benchmarks.tokens [--quick] [--json FILE]
"""

from __future__ import annotations

import gc
import statistics
import sys
import time

from benchmarks.harness import Row, arguments, below, report, say
from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share

MS = 1_000_000


def decisions(leases: int, count: int) -> list[int]:
    """Times in ns of `count` decisions: a slice comes back and the next one is given.

    Every lease wants the device; half of them are capped above their request, so that buckets and
    timers take part.
    """
    tokens = TokenScheduler()
    request = PPM // leases
    for n in range(leases):
        limit = min(2 * request, PPM) if n % 2 else PPM
        tokens.handle(on.Joined(f"lease-{n}", Share(request, limit)), 0)
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


def rows(leases: int, count: int) -> list[Row]:
    gc.collect()
    slices = sorted(decisions(leases, count))
    woken = sorted(wakes(leases, count))
    return [
        below(f"decision, {leases} leases, p50", "us", statistics.median(slices) / 1e3, 50),
        below(f"decision, {leases} leases, p99", "us", slices[len(slices) * 99 // 100] / 1e3, 50),
        below(f"wake, {leases} leases, p50", "us", statistics.median(woken) / 1e3, 50),
    ]


def main() -> int:
    options = arguments(__doc__ or "")
    count = 20_000 if options.quick else 200_000
    figures: list[Row] = []
    for leases in (2, 20, 200):
        say(f"{leases} leases")
        figures += rows(leases, count)
    report("tokens", figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
