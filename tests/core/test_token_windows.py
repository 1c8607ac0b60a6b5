"""The windows that metrics read."""

from __future__ import annotations

import random

from rgpu_server.core.tokens.windows import GRAIN_NS, SECOND, IntervalWindow

MS = 1_000_000


def test_a_window_counts_what_falls_into_it() -> None:
    window = IntervalWindow()
    window.add(0, 10 * MS, 10 * MS)
    window.add(500 * MS, 600 * MS, 50 * MS)
    assert window.busy(SECOND, SECOND) == 60 * MS
    assert window.busy(SECOND + 5 * MS, SECOND) == 55 * MS
    # Half of an interval that was half busy.
    assert window.busy(SECOND + 550 * MS, SECOND) == 25 * MS
    assert window.busy(SECOND + 600 * MS, SECOND) == 0
    assert window.busy(SECOND + 600 * MS, 10 * SECOND) == 60 * MS


def test_a_window_forgets_and_stays_small() -> None:
    window = IntervalWindow()
    for n in range(200_000):
        window.add(n * 100_000, n * 100_000 + 50_000, 50_000)
    assert len(window) <= 10 * SECOND // GRAIN_NS + 2
    now = 200_000 * 100_000
    assert abs(window.busy(now, SECOND) - SECOND // 2) <= GRAIN_NS
    assert abs(window.busy(now, 10 * SECOND) - 5 * SECOND) <= GRAIN_NS


def test_a_window_agrees_with_the_plain_sum() -> None:
    rng = random.Random(3)
    window, plain, now = IntervalWindow(), [], 0
    for _ in range(500):
        start = now + rng.randrange(50 * MS)
        now = start + rng.randrange(1, 60 * MS)
        plain.append((start, now))
        window.add(start, now, now - start)
        for span in (SECOND, 10 * SECOND):
            inside = sum(max(0, e - max(s, now - span)) for s, e in plain)
            assert abs(window.busy(now, span) - inside) <= GRAIN_NS
