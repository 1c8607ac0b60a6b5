"""The headers of CUDA that the source of a kernel may include.

The compiler can open no file, so it gets the headers with the source: those that the source names,
and those that they name. They come from NVIDIA's packages, CuPy's and CUDA's toolkit, and from no
other folder.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rgpu_server.arrays.nvrtc import toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator

_INCLUDE: Final = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_MOST_HEADERS: Final = 4096
_MOST_BYTES: Final = 64 << 20
_MOST_NAME_BYTES: Final = 256
# Below the folder of an installed package.
_FOLDERS: Final = (
    ("nvidia", "cu13/include"),
    ("nvidia", "cu13/include/cccl"),
    ("nvidia", "cuda_runtime/include"),
    ("nvidia", "cuda_cccl/include"),
    ("cupy", "_core/include"),
)


class Headers:
    """Reads headers below some folders, which stay open, so that another user may read them too."""

    def __init__(self, folders: list[Path] | None = None) -> None:
        """Opens the folders; None: those of the installed packages."""
        self._folders: list[int] = []
        for folder in _installed() if folders is None else folders:
            with contextlib.suppress(OSError):
                self._folders.append(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))

    def of(self, source: bytes) -> dict[str, bytes]:
        """Returns the headers that a source needs, by the names by which they are included.

        A name that is in no folder is left out: the compiler says where it is missing. What
        conditional compilation leaves out is in it too.
        """
        found: dict[str, bytes] = {}
        waiting = list(_names(source, ""))
        read: set[str] = set()
        total = 0
        while waiting:
            name, path = waiting.pop()
            if name in found or len(found) >= _MOST_HEADERS or total > _MOST_BYTES:
                continue
            text = self._read(path)
            if text is None:
                continue
            found[name] = text
            total += len(text)
            if path not in read:
                read.add(path)
                waiting += _names(text, posixpath.dirname(path))
        return found

    def _read(self, path: str) -> bytes | None:
        for folder in self._folders:
            opener = partial(_opened, folder)
            with contextlib.suppress(OSError), open(path, "rb", opener=opener) as opened:
                return opened.read(_MOST_BYTES)
        return None


def _opened(folder: int, path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, dir_fd=folder)


def _names(text: bytes, folder: str) -> Iterator[tuple[str, str]]:
    """Yields the includes of a text: each as it is written, and where it may lie below a folder of
    headers. A header's own folder comes first, and so is yielded last.
    """
    for match in _INCLUDE.finditer(text):
        if len(match[1]) > _MOST_NAME_BYTES:
            continue
        name = match[1].decode(errors="replace").strip()
        for path in (name, posixpath.join(folder, name)):
            below = posixpath.normpath(path)
            if not below.startswith(("/", "..")) and "\0" not in below:
                yield name, below


def _installed() -> list[Path]:
    found: list[Path] = []
    for package, folder in _FOLDERS:
        spec = find_spec(package)
        roots = spec.submodule_search_locations if spec is not None else None
        found += [Path(root) / folder for root in roots or []]
    return [*found, toolkit() / "include", toolkit() / "include" / "cccl"]
