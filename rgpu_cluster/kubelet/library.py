"""Puts the driver library into a folder of this node from which containers can mount it.

The plugin's own installation lies in the plugin's image, which the container runtime cannot mount.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

_BLOCK = 1 << 20


def put_library(source: Path, root: Path) -> Path:
    """Copies the folder `source` below `root`; returns where it lies. OSError.

    The copy is named by its content: when a later release is installed, running containers keep the
    library that they have mounted.
    """
    folder = root / _digest(source)
    if folder.is_dir():
        return folder
    root.mkdir(mode=0o755, parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=root))
    try:
        shutil.copytree(source, part, dirs_exist_ok=True)
        part.chmod(0o755)
        try:
            part.rename(folder)
        except OSError:
            # Another process was faster.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(source.rglob("*")):
        digest.update(os.fsencode(path.relative_to(source)) + b"\0")
        if path.is_file():
            with path.open("rb") as file:
                while block := file.read(_BLOCK):
                    digest.update(block)
    return digest.hexdigest()[:16]
