"""`rgpu run` before the program starts: claims its lease and shows the place in line meanwhile."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from rgpu_client.session.claim import FOR_EVER as FOR_EVER
from rgpu_client.session.claim import Held, claim
from rgpu_common.errors import UsageError
from rgpu_common.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_common.wire.claim import Place

_REDRAW_SECONDS = 1.0
_CLEAR = "\r\x1b[K"


def claimed(environment: Mapping[str, str], program: str, wait: float = 0.0) -> dict[str, str]:
    """Returns `environment` with the lease of the run in RGPU_LEASE; errors as `claim`."""
    held = claim_shown(environment, program, wait)
    return {**environment, "RGPU_LEASE": held.key}


def claim_shown(environment: Mapping[str, str], program: str, wait: float) -> Held:
    """Claims a lease and shows the place in line meanwhile; errors as `claim`."""
    line = InLine(sys.stderr)
    try:
        return claim(environment, program, wait, line.show)
    finally:
        line.clear()


def wait_seconds(text: str) -> float:
    """Returns the seconds of `--wait=SECONDS`; UsageError."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds > 0:
        raise UsageError(
            f"--wait takes seconds, not {text!r}: write --wait=60, or --wait alone before another "
            "option or --"
        )
    return seconds


class InLine:
    """Shows the place in line on a stream. On a terminal it redraws one line; elsewhere it writes
    a line for each change.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._tty = stream.isatty()
        self._begun = self._drawn = 0.0
        self._text = self._why = ""

    def show(self, place: Place | None) -> None:
        """Shows a new place; with None redraws the time that has passed."""
        now = time.monotonic()
        if place is not None:
            self._begun = self._begun or now
            said = f"rgpu: waiting for room, place {place.place} of {place.waiting}"
            why = "".join(c if c.isprintable() else "?" for c in place.sentence)
            if not self._why:
                self._write(f"rgpu: {why}\n")
            if not self._tty and said != self._text:  # a server may send the same place again
                self._write(f"{said}\n")
            self._why, self._text = why, said
        elif not self._text or now - self._drawn < _REDRAW_SECONDS:
            return
        if self._tty and self._text:
            self._drawn = now
            self._write(f"{_CLEAR}{self._text}, {format_seconds(now - self._begun)}")

    def clear(self) -> None:
        """Removes the line from a terminal."""
        if self._tty and self._text:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
