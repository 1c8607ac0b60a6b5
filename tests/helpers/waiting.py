"""Waits for a condition by polling with a deadline, never by sleeping."""

from __future__ import annotations

import select
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Returns as soon as `condition` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        select.select([], [], [], 0.01)
