"""The folder where compiled kernels are kept, on a disk."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
from pathlib import Path

log = logging.getLogger("rgpu.compiler")

# Name prefix for servers whose port was chosen by the system: no later server uses their folder.
_PASSING = "any-"
_IN_MEMORY = ("tmpfs", "ramfs")


def kernel_cache(named: str, state: Path, *, own: bool) -> Path | None:
    """Creates and returns the folder; None, with a line in the log, if that fails.

    Args:
        named: the operator's setting, "" for the default.
        state: the server's state folder.
        own: the server chose the state folder, so that its name alone identifies it.
    """
    folder = Path(named) if named else _default(state, own)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.warning(
            "compiled kernels are not kept: %s cannot be created (%s); name a folder on a disk "
            "with emulated.cache", folder, error.strerror,
        )  # fmt: skip
        return None
    if not named and own:
        _sweep(folder.parent, state)
    if in_memory(folder):
        log.warning(
            "compiled kernels use memory: %s is on a file system in memory; name a folder on a "
            "disk with emulated.cache", folder,
        )  # fmt: skip
    return folder


def forget_passing(cache: Path | None) -> None:
    """Removes the folder of a server whose port was chosen by the system."""
    if cache is not None and cache.name.startswith(_PASSING):
        shutil.rmtree(cache, ignore_errors=True)


def in_memory(folder: Path) -> bool:
    """Returns True if the folder lies on a file system in memory."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            if before.split()[2] == wanted:
                return after.split()[0] in _IN_MEMORY
    return False


def _default(state: Path, own: bool) -> Path:
    if os.geteuid() == 0:
        base = Path("/var/cache/rgpu")
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or str(Path("~/.cache").expanduser())
        base = Path(cache) / "rgpu" / "kernels"
    name = state.name if own else f"state-{hashlib.sha256(bytes(state)).hexdigest()[:12]}"
    return base / name


def _sweep(base: Path, state: Path) -> None:
    """Removes the folders that killed servers with a system-chosen port left."""
    for left in base.glob(f"{_PASSING}*"):
        if not (state.parent / left.name).exists():
            shutil.rmtree(left, ignore_errors=True)
