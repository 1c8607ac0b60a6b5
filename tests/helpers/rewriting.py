"""Rewrites the assertions of test files once for all processes of a run.

Each process collects all tests, so each imports all their files. Pytest rewrites the assertions of
each file before, which takes two thirds of that time, and keeps the result for the next import if
it may write bytecode. In a new checkout all processes would begin with the same files at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_together(config: pytest.Config, files: Iterable[Path], folder: Path) -> None:
    """Rewrites those of `files` that no other process of the run has begun with.

    folder: one for all processes of the run. What is rewritten stands in it if Python was told to
    write no bytecode (PYTHONDONTWRITEBYTECODE), otherwise where pytest keeps it.
    """
    if rewrite.assertstate_key not in config.stash:
        return  # --assert=plain
    if sys.dont_write_bytecode:
        _keep_in(folder / "rewritten")
    claims = folder / "claims"
    claims.mkdir(exist_ok=True)
    for number, file in enumerate(files):
        if _is_first(claims / str(number)):
            _rewrite(config, file)


def _keep_in(folder: Path) -> None:
    """Has pytest look for rewritten files there."""
    rewrite.get_cache_dir = lambda path: folder.joinpath(*Path(path).parts[1:-1])


def _is_first(claim: Path) -> bool:
    try:
        os.close(os.open(claim, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))
    except FileExistsError:
        return False
    return True


def _rewrite(config: pytest.Config, file: Path) -> None:
    kept = rewrite.get_cache_dir(file) / (file.stem + rewrite.PYC_TAIL)
    if rewrite._read_pyc(file, kept) is not None:
        return
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        source, code = rewrite._rewrite_test(file, config)
    except (OSError, SyntaxError):
        return  # whoever imports the file says so
    rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source, kept)
