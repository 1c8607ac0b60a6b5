"""Waits for a condition by polling with a deadline, never by sleeping."""

from __future__ import annotations

import select
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Returns soon after `condition` holds; fails after `seconds`.

    It looks again after a twentieth of the time that it has waited: what comes at once is seen at
    once, and a long wait takes no processor from what it waits for.
    """
    begun = time.monotonic()
    while not condition():
        waited = time.monotonic() - begun
        assert waited < seconds, "the condition did not become true in time"
        select.select([], [], [], min(max(waited / 20, 0.01), 0.5))
