"""What `rgpu doctor` finds, and the checks that find it."""

from __future__ import annotations

import re
import shutil
import textwrap
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypedDict

from rgpu_common.errors import RgpuError
from rgpu_common.texts import one_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

_INDENT = " " * 22
# Where the advice of an error's sentence begins.
_VERBS = "ask|correct|end|give|install|leave|make|name|raise|run|set|start|unset|use|wait|write"
_ADVICE = re.compile(f"; |: (?=(?:{_VERBS})\\b)")


class Level(Enum):
    """ok: as it must be. note: a path or a part cannot be used, and nothing here needs it.
    warning: it works, and something will surprise. error: it does not work.
    """

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


class FindingRow(TypedDict):
    """One finding. level: "ok", "note", "warning" or "error". remedy: "" if nothing is to be
    done.
    """

    area: str
    level: str
    sentence: str
    remedy: str


class Report(TypedDict):
    """What `rgpu doctor --json` prints. errors, warnings: how many findings have this level."""

    findings: list[FindingRow]
    errors: int
    warnings: int


@dataclass(frozen=True, slots=True)
class Finding:
    """area: the subject in one word, such as "driver". remedy: what to do; warnings and errors
    have one.
    """

    area: str
    level: Level
    sentence: str
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.level in (Level.WARNING, Level.ERROR) and not self.remedy:
            raise ValueError(f"the finding {self.sentence!r} has no remedy")

    def row(self) -> FindingRow:
        """Returns the finding for JSON."""
        return {
            "area": self.area,
            "level": self.level.value,
            "sentence": one_line(self.sentence),
            "remedy": one_line(self.remedy),
        }

    def text(self) -> str:
        """Returns the finding for a terminal. Long sentences are wrapped."""
        head = f"{self.level.value:<9}{self.area:<13}"
        lines = [head + _wrapped(one_line(self.sentence))]
        if self.remedy:
            lines.append(f"{_INDENT}-> {_wrapped(one_line(self.remedy), 3)}")
        return "\n".join(lines)


def _wrapped(text: str, more: int = 0) -> str:
    """Returns the text with its later lines below the first one."""
    width = max(min(shutil.get_terminal_size((100, 24)).columns, 100) - len(_INDENT) - more, 30)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return ("\n" + _INDENT + " " * more).join(lines)


@dataclass(frozen=True, slots=True)
class Check:
    """run: yields the findings of one area, or of several that depend on each other. remedy: what
    helps against an RgpuError that ends the check.
    """

    area: str
    run: Callable[[argparse.Namespace], Iterable[Finding]]
    remedy: str

    def findings(self, arguments: argparse.Namespace) -> Iterator[Finding]:
        """Yields what the check finds. An RgpuError becomes an error of the check's area."""
        try:
            yield from self.run(arguments)
        except RgpuError as error:
            yield failed(self.area, error, self.remedy)


def ok(area: str, sentence: str) -> Finding:
    """Returns a finding about something that is as it must be."""
    return Finding(area, Level.OK, sentence)


def note(area: str, sentence: str, remedy: str = "") -> Finding:
    """Returns a finding about something that nothing here needs."""
    return Finding(area, Level.NOTE, sentence, remedy)


def warning(area: str, sentence: str, remedy: str) -> Finding:
    """Returns a finding about something that will surprise."""
    return Finding(area, Level.WARNING, sentence, remedy)


def wrong(area: str, sentence: str, remedy: str) -> Finding:
    """Returns a finding about something that does not work."""
    return Finding(area, Level.ERROR, sentence, remedy)


def failed(area: str, error: RgpuError, remedy: str) -> Finding:
    """Returns an error whose remedy is the advice in its sentence, else `remedy`."""
    sentence, *advice = _ADVICE.split(str(error), maxsplit=1)
    return wrong(area, sentence, advice[0] if advice else remedy)
