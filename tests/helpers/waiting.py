"""Waiting for something to become true elsewhere: polled with a deadline, never slept for."""

from __future__ import annotations

import select
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    """Returns as soon as `condition` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "what the test waited for did not come"
        select.select([], [], [], 0.01)
