"""The command that tests run."""

from __future__ import annotations

import sys
from pathlib import Path


def rgpu_command() -> str:
    """The `rgpu` beside the running Python."""
    return str(Path(sys.executable).parent / "rgpu")
