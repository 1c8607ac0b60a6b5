"""What the system says of the locks of a file."""

from __future__ import annotations

import os
from pathlib import Path


def _lines(file: int) -> list[str]:
    inode = f":{os.fstat(file).st_ino} "
    return [one for one in Path("/proc/locks").read_text().splitlines() if inode in one]


def waited_for(file: int) -> bool:
    """Returns whether somebody waits for a lock of a file."""
    return any("->" in one for one in _lines(file))


def locked(file: int) -> bool:
    """Returns whether a process has a lock of a file."""
    return any("->" not in one for one in _lines(file))
