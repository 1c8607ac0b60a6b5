"""How often a test repeats what it repeats: a few times by default, many times in a soak."""

from __future__ import annotations

import os

# Set by `pytest --all`, before any test file is imported, for all processes of the run.
ALL = "RGPU_TEST_ALL"
# Set by the parts `scenes` and `node` of `make soak`.
SOAK = "RGPU_TEST_SOAK"


def runs_all() -> bool:
    """Returns whether this run of pytest was asked for all tests (`pytest --all`)."""
    return os.environ.get(ALL) == "1"


def runs_soak() -> bool:
    """Returns whether tests marked `soak` run."""
    return os.environ.get(SOAK) == "1"


def count(variable: str, by_default: int) -> int:
    """Returns how many rounds a test runs: what the environment variable says, which `make soak`
    sets to the long count.
    """
    return int(os.environ.get(variable, by_default))


def repeated_over(*transports: str) -> tuple[str, ...]:
    """Returns the transports if RGPU_TEST_TRANSPORTS=1, as the part `transports` of `make soak` has
    it, and none otherwise.

    For tests of what a call does. Two transports show that (a ring and a stream of bytes); what a
    transport itself does has tests of its own.
    """
    return transports if count("RGPU_TEST_TRANSPORTS", 0) else ()
