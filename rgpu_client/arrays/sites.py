"""Remembers where in the program operations were issued, so that a late error names the line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import CodeType

    from rgpu_client.arrays.ahead import Template

# Operations whose line is known; a program is seldom so far ahead of the worker.
_KEPT = 16384
# Modules whose frames are not the program's own.
_INTERNAL = ("rgpu_client.", "rgpu_common.", "torch.", "cupy.", "cupyx.", "numpy.", "contextlib")
_MOST_FRAMES = 48
# `note` and the function of the issuer that calls it: Python makes an object for each frame that is
# looked at.
_SKIPPED = 2


class Sites:
    """The last operations' places and templates, by operation number."""

    def __init__(self) -> None:
        self._kept: list[tuple[int, CodeType | None, int, Template | None]] = [
            (0, None, 0, None)
        ] * _KEPT
        self._internal: dict[CodeType, bool] = {}

    def note(self, number: int, template: Template | None) -> None:
        """Notes that the operation is issued by the innermost frame that is the program's own.
        template: whose run it is. Called by the issuer.
        """
        frame = sys._getframe(_SKIPPED)
        internal = self._internal
        for _ in range(_MOST_FRAMES):
            code = frame.f_code
            inside = internal.get(code)
            if inside is None:
                name = str(frame.f_globals.get("__name__", "")) + "."
                inside = internal[code] = name.startswith(_INTERNAL)
            if not inside:
                # f_lasti is at hand; the line is computed only for an error.
                self._kept[number % _KEPT] = (number, code, frame.f_lasti, template)
                return
            if frame.f_back is None:
                break
            frame = frame.f_back
        self._kept[number % _KEPT] = (number, None, 0, template)

    def find(self, number: int) -> tuple[str, int] | None:
        """Returns file and line of an operation; None if they are not known any more."""
        at, code, instruction, _ = self._kept[number % _KEPT]
        if at != number or code is None:
            return None
        return code.co_filename, _line(code, instruction)

    def template(self, number: int) -> Template | None:
        """Returns whose run an operation was; None if that is not known any more."""
        at, _, _, template = self._kept[number % _KEPT]
        return template if at == number else None


def _line(code: CodeType, instruction: int) -> int:
    for begin, end, line in code.co_lines():
        if begin <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
