"""Pages of the documentation whose tables are written from rows of the code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def rewrite(names: Sequence[str], replaced: Callable[[str], str]) -> int:
    """Gives each file of `names` the text that `replaced` makes of it. Returns the exit code 0."""
    for name in names:
        path = Path(name)
        path.write_text(replaced(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0
