"""The first process of a container of the demo: makes its file system, then waits and reaps.

python enclose.py JSON, in new mount, PID and network namespaces.  It ends with its input, and every
process of the container with it.  It imports nothing of the demo: it must run by itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import socket
import sys
from typing import Any

MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
_OWN = ("/proc", "/dev", "/sys", "/tmp", "/run")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2); OSError with the target."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    if libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), data.encode()) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), target)


def bind(fd: int, target: str, read_only: bool) -> None:
    """Shows an open file or folder at `target`, which is made if it is not there."""
    if os.path.isdir(f"/proc/self/fd/{fd}"):
        os.makedirs(target, exist_ok=True)
    elif not os.path.exists(target):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(f"/proc/self/fd/{fd}", target, None, MS_BIND | MS_REC)
    if read_only:
        mount(None, target, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def closed_above(path: str) -> str | None:
    """The uppermost folder above `path` that others may not pass through."""
    parts = path.strip("/").split("/")
    for i in range(1, len(parts)):
        folder = "/" + "/".join(parts[:i])
        if not os.stat(folder).st_mode & 0o001:
            return folder
    return None


def make_files(plan: dict[str, Any]) -> None:
    """What a container sees: this machine's file system, read-only, without its /tmp and /run, with
    the mounts of the plan.
    """
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # Opened before anything is hidden: sources may lie in what will be.
    kept = [(os.open(path, os.O_PATH), path) for path in plan["keep"]]
    shown = [(os.open(source, os.O_PATH), target, ro) for source, target, ro in plan["mounts"]]
    hidden = dict.fromkeys(["/tmp", "/run"])
    hidden |= dict.fromkeys(filter(None, (closed_above(path) for path in plan["keep"])))
    tops = [path for path in hidden if not any(path.startswith(f"{o}/") for o in hidden)]
    for path in tops:
        mount("tmpfs", path, "tmpfs", 0, f"mode={'1777' if path == '/tmp' else '0755'}")
    for fd, path in kept:
        if any(path.startswith(f"{top}/") for top in tops):
            bind(fd, path, read_only=True)
    for fd, target, read_only in shown:
        bind(fd, target, read_only)
    for fd, *_ in (*kept, *shown):
        os.close(fd)
    mount("sysfs", "/sys", "sysfs", MS_RDONLY)
    if plan["read_only"]:
        protect(tops)


def protect(tops: list[str]) -> None:
    """Takes the right to write from everything but /tmp and the plan's volumes."""
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        points = [line.split()[4] for line in file]
    for point in points:
        if not any(point == own or point.startswith(f"{own}/") for own in _OWN):
            try:
                mount(None, point, None, MS_BIND | MS_REMOUNT | MS_RDONLY)
            except FileNotFoundError:
                continue  # it lies below a folder that is hidden now
    for top in tops:
        if top != "/tmp":
            mount(None, top, None, MS_BIND | MS_REMOUNT | MS_RDONLY)


def main() -> None:
    plan = json.loads(sys.argv[1])
    socket.sethostname(plan["name"])
    make_files(plan)
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0], [], [], 0.2)
        if ready and not os.read(0, 64):
            return
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            continue


if __name__ == "__main__":
    main()
