"""Reads the values of `RGPU_*` variables. Errors name the variable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rgpu_common.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

# Variable -> its meaning, for the error sentence about a value that is neither 0 nor 1.
FLAGS = {
    "RGPU_COMPRESSION": "1 to let what goes over slow networks be compressed, else 0",
    "RGPU_HIDE_NVJITLINK": "1 to hide nvJitLink from the program, else 0",
    "RGPU_MEMORY_CREDIT": "0 to ask the server for every allocation, else 1",
    "RGPU_MOVE": "0 to leave running sessions on their path, else 1",
    "RGPU_RESUME": "1 for a session that survives cuts, or 0 for one that does not",
}


def variable(environment: Mapping[str, str], name: str, parse: Callable[[str], T]) -> T | None:
    """Returns the value of a variable, or None if it is not set. UsageError: it is not valid."""
    text = environment.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def flag(environment: Mapping[str, str], name: str) -> bool | None:
    """Returns a variable of `FLAGS`, or None if it is not set. UsageError: it is not 0 or 1."""
    text = environment.get(name, "")
    if text not in ("", "0", "1"):
        raise UsageError(f"{name} is {FLAGS[name]}, not {text!r}")
    return text == "1" if text else None


def check_flags(environment: Mapping[str, str]) -> None:
    """Raises UsageError for the first variable of `FLAGS` that is neither 0 nor 1."""
    for name in FLAGS:
        flag(environment, name)


def writable(environment: Mapping[str, str], name: str) -> Path | None:
    """Returns the file that a variable names, or None if it is not set. UsageError: the file cannot
    be written.
    """
    text = environment.get(name)
    if not text:
        return None
    path = Path(text)
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise UsageError(
            f"{name}={text} cannot be written: name a file in a folder that may be written to"
        )
    return path
