"""Texts that others wrote, made fit for a log, a table and a terminal."""

from __future__ import annotations

import re
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 8
# As `<numpy.random._pcg64.PCG64 object at 0x7f3a5c0b1a60>` has one.
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,16}\b")


def one_line(text: str, most: int = sys.maxsize) -> str:
    """Returns a text of at most `most` characters in which only printable ones are left: others
    could add lines to a log, or change how a terminal shows it.
    """
    return "".join(c if c.isprintable() else "?" for c in text[:most])


def may_be(text: str, names: Sequence[str]) -> str:
    """Returns the sentence for a word that may mean several things, with the names of some."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{text!r} may be {', '.join(names[:_MOST_NAMED])}{more}: name one of them"


def harmless(value: Any) -> Any:
    """Returns what another machine has sent, with every text fit for a terminal: of what is not
    printable only line breaks and tabs are left. Lists and maps are gone through.
    """
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, list | tuple):
        return [harmless(one) for one in value]
    if isinstance(value, dict):
        return {harmless(key): harmless(one) for key, one in value.items()}
    return value


def without_addresses(text: str) -> str:
    """Returns a text in which no address of this process is left: it goes to somebody who could
    attack the process.
    """
    return _ADDRESS.sub("0x...", text)


def _shown(character: str) -> str:
    return character if character.isprintable() or character in "\n\t" else "?"


def file_of_program(program: str) -> str:
    """Returns what people call a program: of an interpreter its script or module.

    program: its name as a HELLO has it: "train", "python3 train.py", "python -m pytest".
    """
    name, _, rest = program.partition(" ")
    rest = rest.removeprefix("-m ")
    return name if not rest or rest.startswith("-") else rest


def process_end(status: int) -> str:
    """Names how a process ended, from the status of `subprocess` or `os.waitstatus_to_exitcode`:
    "SIGSEGV", or "exit code 1".
    """
    if status >= 0:
        return f"exit code {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"
