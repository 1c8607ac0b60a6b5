"""Processor time that the host of a virtual machine gave to others (`steal` in /proc/stat)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

_STEAL = 8  # the eighth number of the line: proc_stat(5)


def _ticks() -> tuple[int, int]:
    """The ticks that the host took so far, and all ticks, of all processors."""
    words = Path("/proc/stat").read_text().partition("\n")[0].split()
    numbers = [int(word) for word in words[1 : _STEAL + 1]]
    return numbers[-1], sum(numbers)


@dataclass
class Stolen:
    """Measures from its construction on how much of the processors' time the host took."""

    _begin: tuple[int, int] = field(default_factory=_ticks)

    def part(self) -> float:
        """The part of all processors' time that the host took, 0 to 1."""
        stolen, total = _ticks()
        return (stolen - self._begin[0]) / max(total - self._begin[1], 1)
