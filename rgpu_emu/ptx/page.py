"""Writes docs/reference/ptx.md from the instruction table.

python -m rgpu_emu.ptx.page docs/reference/ptx.md
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rgpu_emu.ptx.instructions import TABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_emu.ptx.table import Refusal, Row, Slot

_INTRO: Final = """\
# PTX instructions of the emulated device

This page is for people who want to know whether a kernel runs on the emulated device. `make gen`
writes it from the instruction table (`rgpu_emu/ptx/forms_*.py`). Each line is a form: `(.a|.b)` is
one of these modifiers, `[.a|.b]` one of them or none. A kernel that reaches another instruction is
refused when the program asks for the kernel, with instruction, line and reason. The other kernels
of its module run. The
[PTX manual](https://docs.nvidia.com/cuda/parallel-thread-execution/#instructions) says what each
form does.
"""
# Chapters of the manual, by the beginning of their sections' anchors.
_CHAPTERS: Final = {
    "integer-arithmetic": "Integers",
    "extended-precision-arithmetic": "Integers with a carry",
    "floating-point": "Floating point",
    "half-precision-floating-point": "Half precision",
    "comparison-and-selection": "Comparison and selection",
    "half-precision-comparison": "Half precision comparison",
    "logic-and-shift": "Logic and shift",
    "data-movement-and-conversion": "Data movement and conversion",
    "texture": "Textures",
    "surface": "Surfaces",
    "control-flow": "Control flow",
    "parallel-synchronization-and-communication": "Synchronization and communication",
    "warp-level-matrix": "Matrices",
    "stack-manipulation": "Stack",
    "simd-video": "SIMD video",
    "scalar-video": "Scalar video",
    "miscellaneous": "Others",
}


def _slot(slot: Slot, row: Row) -> str:
    given = next(w for w in row.pattern.split() if w.partition("=")[0].strip("?") == slot.name)
    words = given.partition("=")[2].split("|") if "=" in given else [slot.name]
    text = "|".join(f".{word}" for word in words)
    if slot.optional:
        return f"[{text}]"
    return text if len(words) == 1 else f"({text})"


def form_text(row: Row) -> str:
    """Returns a row as a line of the page."""
    return row.op + "".join(_slot(slot, row) for slot in row.slots)


def _chapter(row: Row) -> str:
    found = [prefix for prefix in _CHAPTERS if row.section.startswith(f"{prefix}-instructions")]
    return _CHAPTERS[max(found, key=len)]


def _refusal(refusal: Refusal) -> str:
    op = "any instruction" if refusal.op == "*" else f"`{refusal.op}`"
    return f"| {' '.join([op, *map(_word, refusal.words.split())])} | {refusal.why} |"


def _word(word: str) -> str:
    if word.startswith("!"):
        return f"without `.{word[1:]}`"
    return f"with `.{word[:-1]}...`" if word.endswith("*") else f"with `.{word}`"


def page() -> str:
    """Returns the page in Markdown."""
    lines = [_INTRO]
    for title in dict.fromkeys(_CHAPTERS.values()):
        rows = [row for row in TABLE.rows if _chapter(row) == title]
        if rows:
            lines += [f"## {title}", "", "```"]
            lines += sorted({form_text(row) for row in rows})
            lines += ["```", ""]
    lines += ["## Refused, and why", "", "| instruction | reason |", "| -- | -- |"]
    lines += map(_refusal, TABLE.refusals)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Writes the page to each path."""
    for name in arguments:
        Path(name).write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
