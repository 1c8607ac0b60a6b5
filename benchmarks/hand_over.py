"""How long the token loop takes from a worker's signal to the next lease's grant, on real pages.

python -m benchmarks.hand_over [--quick] [--json FILE]
"""

from __future__ import annotations

import ctypes
import gc
import statistics
import sys
import time

from benchmarks.harness import Row, arguments, below, report, say
from rgpu_server.core.model import PPM, Quota
from rgpu_server.core.tokens.share import Share
from rgpu_server.tokens.device import DeviceTokens
from rgpu_server.tokens.page import Phase, TokenView, native
from rgpu_server.tokens.seats import Seat, WorkerSeat
from rgpu_server.workers.pages import LeasePage

KERNEL_US = 100
LONG_NS = 100_000_000_000


def speak(seat: Seat, active: int = 0, spent: int = 0, drained: int = 0) -> None:
    """What the only worker of a lease writes; it always wants more."""
    now = time.monotonic_ns()
    words = (ctypes.c_uint64 * 9)(active, active, spent, 1, KERNEL_US, 0, now, 0, drained)
    native().rgpu_token_write_slot(ctypes.c_void_p(seat.page.address), 0, words)


def seats(leases: int) -> tuple[DeviceTokens, list[Seat]]:
    device = DeviceTokens(LONG_NS, lambda session, sentence: None)
    made = []
    for number in range(leases):
        page = LeasePage(Quota(1 << 30))
        page.take(0, number + 1)
        token = TokenView(page.address)
        token.write(Phase.NONE, 0)
        seat = Seat(f"lease-{number}", "", 0, Share(PPM // leases), False, "", page, token)
        seat.workers[1] = WorkerSeat(1, 0, 0, -1, -1, -1, "")
        device.add(seat)
        made.append(seat)
    device.start()
    for seat in made:
        speak(seat)
        device.look(seat)
    return device, made


def hand_overs(leases: int, count: int) -> list[int]:
    """Times in ns from looking at a page that says "spent" until the next grant is written."""
    device, made = seats(leases)
    times: list[int] = []
    clock = time.perf_counter_ns
    while len(times) < count:
        holder = device.holder
        if holder is None or holder.phase is Phase.OPEN:
            device.act(time.monotonic_ns())
            continue
        speak(holder, active=holder.generation)
        device.look(holder)
        speak(holder, spent=holder.generation, drained=time.monotonic_ns())
        start = clock()
        device.look(holder)
        times.append(clock() - start)
    for seat in made:
        seat.page.close()
    return times


def rows(leases: int, count: int) -> list[Row]:
    gc.collect()
    gc.freeze()
    gc.disable()
    times = sorted(hand_overs(leases, count))
    gc.enable()
    return [
        below(f"hand-over, {leases} leases, p50", "us", statistics.median(times) / 1e3, 60),
        below(f"hand-over, {leases} leases, p99", "us", times[len(times) * 99 // 100] / 1e3, 200),
    ]


def main() -> int:
    options = arguments(__doc__ or "")
    count = 2_000 if options.quick else 20_000
    figures: list[Row] = []
    for leases in (2, 20, 200):
        say(f"{leases} leases")
        figures += rows(leases, count)
    report("hand-over", figures, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
