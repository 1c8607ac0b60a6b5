"""The variables that tell agents how often to measure.

`rgpu run` checks them before it starts a program; the agents themselves import much more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

PACE = "RGPU_AGENT_SECONDS"
MOVES = "RGPU_MOVE"
TEXTFILE = "RGPU_AGENT_TEXTFILE"
_LEAST_PACE, _MOST_PACE = 0.1, 86400.0


def pace_seconds(environment: Mapping[str, str]) -> float | None:
    """Returns the time between measurements, RGPU_AGENT_SECONDS; None if it is not set.

    Raises:
        UsageError: it is no such time.
    """
    text = environment.get(PACE)
    if not text:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _LEAST_PACE <= seconds <= _MOST_PACE:
        raise UsageError(
            f"{PACE}={text} is not a number of seconds from {_LEAST_PACE:g} to {_MOST_PACE:g}"
        )
    return seconds
