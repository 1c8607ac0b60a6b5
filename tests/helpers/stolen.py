"""Processor time that others took: the host of a virtual machine (`steal` in /proc/stat), and
processes that are not of this run of the tests.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from helpers.ends import descendants

# The numbers of a processor's line in /proc/stat, and the place of those of a process: proc(5).
_IDLE = (3, 4)
_STEAL = 7
_UTIME = 11  # with stime, cutime and cstime behind it


def taken_ticks() -> tuple[int, int]:
    """The ticks that others took so far, and all ticks, of all processors."""
    own = own_ticks()
    words = Path("/proc/stat").read_text().partition("\n")[0].split()
    numbers = [int(word) for word in words[1 : _STEAL + 2]]
    total = sum(numbers)
    return total - sum(numbers[at] for at in _IDLE) - own, total


def own_ticks() -> int:
    """The ticks of this run's processes, with those that a living one has waited for."""
    root = os.getpid()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = os.getppid()
    found = 0
    for pid in (root, *descendants(root)):
        try:
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # its parent has its ticks now
        found += sum(int(word) for word in words[_UTIME : _UTIME + 4])
    return found


@dataclass
class Stolen:
    """Measures from its construction on how much of the processors' time others took."""

    _begin: tuple[int, int] = field(default_factory=taken_ticks)

    def part(self) -> float:
        """The part of all processors' time that others took, 0 to 1."""
        stolen, total = taken_ticks()
        # What a process took that ends unseen was this run's before, so the difference may be low.
        return max(stolen - self._begin[0], 0) / max(total - self._begin[1], 1)
