"""Text with colours for terminals, and bars; plain where colours or Unicode are not wanted."""

from __future__ import annotations

import re
import unicodedata

from msgspec import Struct

from rgpu_common.units import PPM

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_RESET = "\033[0m"
_ESCAPES = re.compile(r"\033\[[0-9;]*m")
_PIECES = re.compile(r"(\033\[[0-9;]*m)")
# Parts of a cell, from an eighth to all of it.
_EIGHTHS = "▏▎▍▌▋▊▉█"
# Categories of Unicode besides marks: control and format characters, ends of lines and paragraphs.
_NO_CELL = frozenset({"Cc", "Cf", "Zl", "Zp"})
# Hangul vowels and final consonants: a terminal shows them in the cells of the consonant before.
_JOINED_VOWELS = frozenset(map(chr, range(0x1160, 0x1200)))


class Ink(Struct, frozen=True):
    """colour: escape codes may be written.  fine: the terminal shows Unicode."""

    colour: bool = True
    fine: bool = True

    def paint(self, text: str, *styles: str) -> str:
        """The text in these styles."""
        if not self.colour or not text or not styles:
            return text
        return f"\033[{';'.join(_CODES[style] for style in styles)}m{text}{_RESET}"

    def bar(self, width: int, ppm: int, style: str, ticks: tuple[int | None, int | None]) -> str:
        """A bar over the whole device, width cells long, filled up to ppm.

        ticks: where the guaranteed share and the limit stand, in millionths; None: not shown.
        """
        cells = self._fill(width, ppm)
        marks: dict[int, str] = {}
        request, limit = ticks
        if limit is not None:
            marks[_cell(limit, width)] = "│" if self.fine else "|"
        if request is not None:
            marks[_cell(request, width)] = "┃" if self.fine else "!"
        full = ppm * width // PPM
        parts = []
        for i, cell in enumerate(cells):
            if i in marks:
                parts.append(self.paint(marks[i], "bold"))
            elif i < full or cell not in (" ", "·", "."):
                parts.append(self.paint(cell, style))
            else:
                parts.append(self.paint(cell, "dim"))
        return "".join(parts)

    def _fill(self, width: int, ppm: int) -> list[str]:
        eighths = min(max(round(ppm * width * 8 / PPM), 0), width * 8)
        full, rest = divmod(eighths, 8)
        if not self.fine:
            full += rest >= 4
            return ["#"] * full + ["."] * (width - full)
        cells = ["█"] * full
        if rest:
            cells.append(_EIGHTHS[rest - 1])
        return cells + ["·"] * (width - len(cells))


def _cell(ppm: int, width: int) -> int:
    """The cell in which a share ends."""
    return min(max(-(-ppm * width // PPM) - 1, 0), width - 1)


def visible(text: str) -> int:
    """Returns how many cells of a terminal a text takes: none for colours, two for 東."""
    return sum(map(_cells, _ESCAPES.sub("", text)))


def clip(text: str, width: int, fine: bool = True) -> str:
    """Returns plain text in at most `width` cells; a text that is too long ends with a mark."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    if visible(printable) <= width:
        return printable
    return _first(printable, max(width - 1, 0)) + ("…" if fine else "~")


def cut(text: str, width: int) -> str:
    """Returns a text, perhaps with colours, in at most `width` cells."""
    if visible(text) <= width:
        return text
    parts, left = [], width
    for i, part in enumerate(_PIECES.split(text)):
        if i % 2 == 0:  # between escapes
            part = _first(part, left)
            left -= visible(part)
        parts.append(part)
    return "".join(parts)


def pad(text: str, width: int, right: bool = False) -> str:
    """Returns a text, perhaps with colours, in exactly `width` cells, if it is not longer."""
    room = " " * max(width - visible(text), 0)
    return room + text if right else text + room


def _first(text: str, width: int) -> str:
    """Returns the beginning of a plain text that fits into `width` cells, accents included."""
    taken = 0
    for i, character in enumerate(text):
        taken += _cells(character)
        if taken > width:
            return text[:i]
    return text


def _cells(character: str) -> int:
    """Returns how many cells a character takes: 0 (accents), 1 or 2.  A control character: 0."""
    category = unicodedata.category(character)
    if category[0] == "M" or category in _NO_CELL or character in _JOINED_VOWELS:
        return 0
    wide = category != "Cn" and unicodedata.east_asian_width(character) in "FW"
    return 2 if wide else 1
