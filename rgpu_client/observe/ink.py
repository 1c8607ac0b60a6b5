"""Coloured text and bars for terminals, also without colours and without Unicode."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rgpu_common.units import PPM

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_RESET = "\033[0m"
_ESCAPES = re.compile(r"\033\[[0-9;]*m")
_PIECES = re.compile(r"(\033\[[0-9;]*m)")
# Characters that fill a part of a cell, from an eighth to the whole cell.
_EIGHTHS = "▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Ink:
    """The abilities of a terminal. colour: it accepts escape codes. fine: it shows Unicode."""

    colour: bool = True
    fine: bool = True

    def paint(self, text: str, *styles: str) -> str:
        """Returns the text in these styles."""
        if not self.colour or not text or not styles:
            return text
        return f"\033[{';'.join(_CODES[style] for style in styles)}m{text}{_RESET}"

    def bar(self, width: int, ppm: int, style: str, ticks: tuple[int | None, int | None]) -> str:
        """Returns a bar of `width` cells that stands for the whole device and is filled up to ppm.

        ticks: the guaranteed share and the limit in millionths; each is marked unless it is None.
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
    """Returns the cell in which a share ends."""
    return min(max(-(-ppm * width // PPM) - 1, 0), width - 1)


def visible(text: str) -> int:
    """Returns how many cells a text takes on the screen."""
    return len(_ESCAPES.sub("", text))


def clip(text: str, width: int, fine: bool = True) -> str:
    """Cuts plain text to at most width cells. A mark at the end shows that it was cut."""
    printable = "".join(c if c.isprintable() else "?" for c in text)
    if len(printable) <= width:
        return printable
    return printable[: max(width - 1, 0)] + ("…" if fine else "~")


def cut(text: str, width: int) -> str:
    """Cuts text, which may have colours, to at most width cells."""
    if visible(text) <= width:
        return text
    parts, left = [], width
    for i, part in enumerate(_PIECES.split(text)):
        if i % 2 == 0:  # between escapes
            part = part[:left]
            left -= len(part)
        parts.append(part)
    return "".join(parts)


def pad(text: str, width: int, right: bool = False) -> str:
    """Fills text, which may have colours, with blanks to width cells. Longer text is unchanged."""
    room = " " * max(width - visible(text), 0)
    return room + text if right else text + room
