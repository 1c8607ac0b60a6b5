"""Texts that others wrote, made fit for a log, a table and a terminal."""

from __future__ import annotations

import sys


def one_line(text: str, most: int = sys.maxsize) -> str:
    """Returns a text of at most `most` characters in which only printable ones are left: others
    could add lines to a log, or change how a terminal shows it.
    """
    return "".join(c if c.isprintable() else "?" for c in text[:most])
