"""Shows how far a long transfer is, to a person at a terminal."""

from __future__ import annotations

import sys
import time

from rgpu_common.units import format_bytes

# Shorter transfers show nothing.
_AFTER_SECONDS = 2.0
_WIDTH = 78


class Progress:
    """One transfer of so many bytes; called with the bytes that are left.

    verb: "sending" or "receiving".
    """

    def __init__(self, verb: str, size: int) -> None:
        self._verb = verb
        self._size = size
        self._began = time.monotonic()
        self._shown = False

    def __call__(self, left: int) -> None:
        """Shows one line, over and over."""
        seconds = time.monotonic() - self._began
        if seconds < _AFTER_SECONDS or not sys.stderr.isatty():
            return
        done = self._size - left
        rate = format_bytes(round(done / seconds))
        line = f"rgpu: {self._verb} {format_bytes(self._size)}: {done / self._size:.0%}, {rate}/s"
        print(f"\r{line[:_WIDTH]:<{_WIDTH}}", end="", file=sys.stderr, flush=True)
        self._shown = True

    def close(self) -> None:
        """Takes the line away."""
        if self._shown:
            print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)
            self._shown = False
