"""A folder with a short name, because the path of a Unix socket has at most 107 bytes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yields the folder, and removes it."""
    folder = Path(tempfile.mkdtemp(prefix="rgpu-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
