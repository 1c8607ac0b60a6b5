"""How often a test repeats what it repeats: a few times by default, more in CI, many in a soak."""

from __future__ import annotations

import os

# Set by `pytest --all`, before any test file is imported, for all processes of the run.
ALL = "RGPU_TEST_ALL"


def runs_all() -> bool:
    """Returns whether this run of pytest was asked for all tests (`pytest --all`)."""
    return os.environ.get(ALL) == "1"


def count(variable: str, by_default: int, with_all: int | None = None) -> int:
    """Returns how many rounds a test runs.

    `by_default` is the count of plain `pytest`, `with_all` that of `pytest --all` (by default the
    same). The environment variable named `variable` goes before both: `make soak` sets it to the
    long count.
    """
    told = os.environ.get(variable)
    if told is not None:
        return int(told)
    return with_all if with_all is not None and runs_all() else by_default


def repeated_over(*transports: str) -> tuple[str, ...]:
    """Returns the transports if RGPU_TEST_TRANSPORTS=1, as the part `transports` of `make soak` has
    it, and none otherwise.

    For tests of what a call does. Two transports show that (a ring and a stream of bytes); what a
    transport itself does has tests of its own.
    """
    return transports if count("RGPU_TEST_TRANSPORTS", 0) else ()
