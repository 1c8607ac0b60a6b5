"""The runs in the background, as `rgpu ps --all` lists them."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, TypedDict

from rgpu_client.background.store import SHOWN_SECONDS, Store
from rgpu_common.tables import fitting
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    from rgpu_client.background.store import Run

_TITLES = ("background", "name", "began>", "ended>", "state", "command")
_DROPPED = ("command", "began")
_MOST_COMMAND = 60


class BackgroundRow(TypedDict):
    """A run in the background of this machine. began_seconds, ended_seconds: since 1970; ended is
    null while it runs. status: its exit code; null while it runs, and if nobody knows it.
    """

    id: str
    name: str
    began_seconds: float
    ended_seconds: float | None
    status: int | None
    lost: bool


def shown_runs() -> list[Run]:
    """Returns the runs that have not ended, and those that ended in the last hour."""
    since = time.time() - SHOWN_SECONDS
    return [run for run in Store(os.environ).all() if not run.ended or run.ended >= since]


def background_rows() -> list[BackgroundRow]:
    """Returns the runs that are shown, for JSON."""
    return [_row(run) for run in shown_runs()]


def _row(run: Run) -> BackgroundRow:
    return {
        "id": run.id,
        "name": run.name,
        "began_seconds": run.began,
        "ended_seconds": run.ended or None,
        "status": run.status if run.ended else None,
        "lost": run.lost,
    }


def background_lines(width: int | None) -> list[str]:
    """Returns a table of the runs that are shown; no lines if there is none."""
    now = time.time()
    rows = [
        (
            run.id,
            run.name,
            f"{format_seconds(max(now - run.began, 0.0))} ago",
            f"{format_seconds(max(now - run.ended, 0.0))} ago" if run.ended else "",
            run.state,
            " ".join(run.words)[:_MOST_COMMAND],
        )
        for run in shown_runs()
    ]
    return ["", fitting(_TITLES, rows, _DROPPED, width)] if rows else []
