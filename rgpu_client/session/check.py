"""`rgpu run` before the program starts: claims its lease and shows the place in line meanwhile."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, NamedTuple, TextIO

from rgpu_client.session.claim import FOR_EVER as FOR_EVER
from rgpu_client.session.claim import Held, claim
from rgpu_client.session.claim_each import claim_each
from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgpu_common.wire.claim import Place

_REDRAW_SECONDS = 1.0
# A server that lives answers a claim sooner.
_SILENT_SECONDS = 3.0
_CLEAR = "\r\x1b[K"


def claimed(environment: Mapping[str, str], program: str, wait: float = 0.0) -> dict[str, str]:
    """Returns `environment` with the lease of the run in RGPU_LEASE; errors as `claim_each`."""
    line = InLine(sys.stderr, environment.get("RGPU_SERVER", ""))
    try:
        first = claim_each(environment, program, wait, line.show)[0]
    finally:
        line.clear()
    return {**environment, "RGPU_LEASE": first.key}


class Patience(NamedTuple):
    """How long a claim waits in line. given_up: tells that the caller no longer wants the lease."""

    seconds: float = 0.0
    given_up: Callable[[], bool] = bool


class GivenUpError(Exception):
    """The caller no longer wants the lease."""


def claim_shown(environment: Mapping[str, str], program: str, patience: Patience) -> Held:
    """Claims a lease and shows the place in line meanwhile; errors as `claim`, and GivenUpError."""
    line = InLine(sys.stderr, environment.get("RGPU_SERVER", ""))

    def progress(place: Place | None) -> None:
        if patience.given_up():
            raise GivenUpError
        line.show(place)

    try:
        return claim(environment, program, patience.seconds, progress)
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
    """Shows the place in line on a stream, with the reason. On a terminal it redraws one line;
    elsewhere it writes a line for each change. server: the one that is asked; "": several.
    """

    def __init__(self, stream: TextIO, server: str = "") -> None:
        self._stream = stream
        self._server = f"the server at {server}" if server else "the servers"
        self._tty = stream.isatty()
        self._asked = time.monotonic()
        self._begun = self._drawn = 0.0
        self._text = self._why = ""

    def show(self, place: Place | None) -> None:
        """Shows a new place; with None redraws the time that has passed, or tells that the server
        has said nothing yet.
        """
        now = time.monotonic()
        if place is not None:
            self._begun = self._begun or now
            said = f"rgpu: waiting for room, place {place.place} of {place.waiting}"
            if not self._tty and said != self._text:  # a server may send the same place again
                self._write(f"{said}{_because(place)}\n")
            self._why, self._text = _because(place), said
        elif not self._text:
            if now - self._asked < _SILENT_SECONDS:
                return
            self._begun, self._text = self._asked, f"rgpu: waiting for {self._server} to answer"
            if not self._tty:
                self._write(f"{self._text}\n")
        elif now - self._drawn < _REDRAW_SECONDS:
            return
        if self._tty and self._text:
            self._drawn = now
            shown = f"{self._text}, {now - self._begun:.0f} s{self._why}"
            # A line that the terminal wraps could not be redrawn.
            import shutil

            width = shutil.get_terminal_size().columns - 1
            self._write(_CLEAR + (shown if len(shown) <= width else shown[: width - 3] + "..."))

    def clear(self) -> None:
        """Removes the line from a terminal."""
        if self._tty and self._text:
            self._write(_CLEAR)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _because(place: Place) -> str:
    """Returns why a claim waits, as the end of a line.

    What the server's sentence says after a semicolon is advice for those who do not wait.
    """
    why = place.sentence.partition("; ")[0]
    return f": {''.join(c if c.isprintable() else '?' for c in why)}"
