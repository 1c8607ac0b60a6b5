"""Where processes run: figures of two ends depend on whether they share a processor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def placed(*cpus: int) -> Iterator[None]:
    """Processes that are started meanwhile run on these processors only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
