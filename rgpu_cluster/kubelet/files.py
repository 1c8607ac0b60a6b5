"""Writes files so that a reader sees the old content or the new, and nobody else sees a secret."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: str, mode: int, owner: int | None = None) -> None:
    """Puts `content` at `path` by one rename; OSError. owner: the numeric user; None: this one."""
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    # O_EXCL: no link that somebody has put there is followed.
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "w", encoding="utf-8") as file:
        file.write(content)
        if owner is not None and owner != os.geteuid():
            os.fchown(fd, owner, -1)
        os.fchmod(fd, mode)
    part.rename(path)


def on_disk(folder: Path) -> bool:
    """Returns whether what is written to a folder may reach a disk."""
    mounts: dict[str, str] = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, rest = line.partition(" - ")
        # The last mount at a path hides earlier ones.
        mounts[fields.split()[4]] = rest.split()[0]
    path = folder.resolve()
    kinds = (mounts.get(str(one)) for one in (path, *path.parents))
    return next(filter(None, kinds), "") not in ("tmpfs", "ramfs")
