"""Measures of a run: shares over sliding windows, Jain's index, waits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sim.worker import STEP, Worker


def used(worker: Worker, start: int, end: int) -> int:
    """Device time between two multiples of 0.1 s."""
    return sum(worker.bins[start // STEP : end // STEP])


def share_error(worker: Worker, share: float, start: int, end: int, window: int) -> float:
    """The largest |achieved - share| in percentage points over all windows within start..end."""
    bins = worker.bins + [0] * (end // STEP - len(worker.bins))
    size = window // STEP
    total = sum(bins[start // STEP : start // STEP + size])
    worst = abs(total / window - share)
    for n in range(start // STEP + size, end // STEP):
        total += bins[n] - bins[n - size]
        worst = max(worst, abs(total / window - share))
    return 100 * worst


def split_errors(
    workers: Sequence[Worker], shares: Sequence[float], start: int, end: int, window: int
) -> list[float]:
    """Of each worker, the largest |own time / time of all - share| in percentage points over all
    windows within start..end.
    """
    size, first, last = window // STEP, start // STEP, end // STEP
    bins = [worker.bins + [0] * (last - len(worker.bins)) for worker in workers]
    worst = [0.0] * len(workers)
    for n in range(first, last - size + 1):
        sums = [sum(one[n : n + size]) for one in bins]
        for i, share in enumerate(shares):
            worst[i] = max(worst[i], abs(sums[i] / sum(sums) - share))
    return [100 * error for error in worst]


def utilisation(workers: Iterable[Worker], start: int, end: int) -> float:
    return sum(used(worker, start, end) for worker in workers) / (end - start)


def jain(values: Sequence[float]) -> float:
    return sum(values) ** 2 / (len(values) * sum(v * v for v in values))


def longest_gap(worker: Worker, start: int) -> int:
    """The longest time from start on in which it wanted the device and had nothing on it."""
    return max((length for begin, length in worker.gaps if begin + length > start), default=0)


def percentile(values: Sequence[int], part: float) -> int:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def hold_bound(kernel: int, slice_ns: int = 10_000_000, in_flight: int = 5_000_000) -> float:
    """L: the longest that one holding of saturated work lasts, ns."""
    return max(kernel, slice_ns + max(kernel, in_flight) / 2)


def share_bound(share: float, own: int, others: Sequence[int], window: int) -> float:
    """Percentage points that a share may be off over a window: no scheduler cuts a kernel."""
    slack = (1 - share) * hold_bound(own) + share * sum(hold_bound(k) for k in others)
    return max(2.0, 100 * slack / window)
