"""Finds the compiled parts. Each lies in its package, so the installed package is searched."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

from rgpu_common.errors import MissingPartError


def compiled_part(package: str, relative: str) -> Path:
    """Returns the path of a compiled part of an installed package.

    Raises:
        MissingPartError: the package lacks the part, as a source tree that is not installed does.
            The sentence says so if a source tree hides an installed package.
    """
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(folder) / relative
        if path.exists():
            return path
    if _is_hidden(package, relative):
        raise MissingPartError(
            f"{package}/{relative} is not here: Python was started in the source folder, which "
            "hides the installed package; start it in another folder"
        )
    raise MissingPartError(
        f"{package}/{relative} is not installed: run `python -m pip install .` in the repository, "
        "and start rgpu from another folder than the repository's root"
    )


def _is_hidden(package: str, relative: str) -> bool:
    """Whether a folder of sys.path has the part, although an earlier one answers the import."""
    below = Path(*package.split("."), relative)
    return any((Path(entry) / below).exists() for entry in sys.path)


def native_library() -> Path:
    """Returns the path of librgpu_native.so, whose C functions Python calls."""
    return compiled_part("rgpu_common", "lib/librgpu_native.so")
