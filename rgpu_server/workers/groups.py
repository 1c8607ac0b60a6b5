"""Ceilings of workers' memory. A memory cgroup counts all memory, shared memory included.

Only a folder that was delegated to this server is used: one that the operator names, or one that
systemd marks as delegated (`Delegate=memory` with `DelegateSubgroup=`). Without such a folder, only
the worker's own limit of private memory holds (rgpu_server/executor/ceiling.h,
rgpu_server/arrays/ceiling.py). A worker sets that limit and cannot raise it; the daemon raises it
with the lease.
"""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.errors import DeviceError
from rgpu_common.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = Path("/sys/fs/cgroup")
_PREFIX = "rgpu-worker-"
# Cgroup version 1 shows "no limit" as a number at least this large.
_NO_LIMIT = 1 << 62
# What a worker uses besides its lease's memory; docs/explanation/quotas-memory.md has the sum.
OVERHEAD_BYTES = 1 << 30
THREAD_BYTES = 8 << 20
# What an array worker on an emulated device uses besides that, its threads, and what it held when
# it was ready.
ARRAYS_OVERHEAD_BYTES = 256 << 20
# As executor/ceiling.cc.
_OWN_OVERHEAD_BYTES = 4 << 30
# NVIDIA's driver keeps the program's pinned memory, and its own code, in the process.
DRIVER_OVERHEAD_BYTES = 32 << 30


def ceiling_bytes(lease_bytes: int, *, emulated: bool, at_first: int | None = None) -> int:
    """Returns the most memory that a worker with such a lease may use.

    at_first: what an array worker used when it was ready, by its cgroup. None: a worker of the
    driver seam, or nothing was measured.
    """
    if not emulated:
        return lease_bytes + DRIVER_OVERHEAD_BYTES
    overhead = OVERHEAD_BYTES if at_first is None else at_first + ARRAYS_OVERHEAD_BYTES
    return lease_bytes + overhead + THREAD_BYTES * len(os.sched_getaffinity(0))


def raise_own_limit(pid: int, more: int) -> None:
    """Raises the limit of a worker's private memory, if it has one.

    Raises:
        OSError: the system refuses it. Raising a limit takes CAP_SYS_RESOURCE.
    """
    soft, hard = resource.prlimit(pid, resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY:
        resource.prlimit(pid, resource.RLIMIT_DATA, (soft + more, hard + more))


class MemoryGroup(Struct, frozen=True):
    """The cgroup of one worker."""

    folder: Path

    def limit(self, limit_bytes: int) -> None:
        """Sets the ceiling, or raises it. It is never lowered, because the lease's own accounting
        already limits the worker.

        Raises:
            OSError: the system refuses the limit.
        """
        file, before = self._limit()
        if before is not None and limit_bytes <= before:
            return
        _write(file, limit_bytes)
        if file.name == "memory.max":
            # Otherwise the worker's memory would go to the node's swap instead.
            with contextlib.suppress(OSError):
                _write(self.folder / "memory.swap.max", 0)

    def raise_by(self, more: int) -> None:
        """Raises the ceiling, if there is one; OSError if the system refuses it."""
        file, before = self._limit()
        if before is not None:
            _write(file, before + more)

    def _limit(self) -> tuple[Path, int | None]:
        """Returns the file of the ceiling, and the ceiling; None: there is none."""
        v2 = (self.folder / "memory.max").exists()
        file = self.folder / ("memory.max" if v2 else "memory.limit_in_bytes")
        text = file.read_text().strip()
        return file, None if text == "max" or int(text) >= _NO_LIMIT else int(text)

    def used(self) -> int | None:
        """Returns the memory that the worker uses; None: the system does not say."""
        for name in ("memory.current", "memory.usage_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                return int((self.folder / name).read_text())
        return None

    def killed(self) -> bool:
        """Returns whether the system has killed the worker at its ceiling."""
        for name in ("memory.events", "memory.oom_control"):
            with contextlib.suppress(OSError):
                for line in (self.folder / name).read_text().splitlines():
                    key, _, count = line.partition(" ")
                    if key == "oom_kill":
                        return int(count) > 0
        return False

    def remove(self) -> None:
        """Removes the cgroup; its worker has ended."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


class MemoryGroups:
    """Creates cgroups in a delegated folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int) -> MemoryGroup | None:
        """Puts a worker that has just started into its own cgroup; returns None if that fails."""
        group = MemoryGroup(self.folder / f"{_PREFIX}{pid}")
        try:
            group.folder.mkdir(exist_ok=True)
            _write(group.folder / "cgroup.procs", pid)
        except OSError:
            group.remove()
            return None
        return group

    def of(self, pid: int) -> MemoryGroup | None:
        """Returns the cgroup that an earlier daemon made for this worker, or None."""
        group = MemoryGroup(self.folder / f"{_PREFIX}{pid}")
        return group if group.folder.is_dir() else None

    def sweep(self) -> None:
        """Removes the cgroups of workers that ended while no daemon ran."""
        for folder in self.folder.glob(f"{_PREFIX}*"):
            MemoryGroup(folder).remove()


def open_groups(setting: str, own: str | None = None) -> MemoryGroups | None:
    """Returns where cgroups may be created, or None.

    setting: `workers.cgroup`: "auto", "off", or a folder. own: text of /proc/self/cgroup, for
    tests.

    Raises:
        DeviceError: the folder in `setting` cannot be used.
    """
    if setting == "off":
        return None
    folder = _delegated(own) if setting == "auto" else Path(setting)
    if folder is None:
        return None
    try:
        _enable(folder)
    except OSError as error:
        if setting == "auto":
            return None
        raise DeviceError(
            f"workers.cgroup: {setting} cannot be used for workers ({error}); name a cgroup "
            'without processes that this server may write to, or say "off"'
        ) from None
    groups = MemoryGroups(folder)
    groups.sweep()
    return groups


def describe(groups: MemoryGroups | None, *, off: bool) -> str:
    """Returns a short line for the log of each start: by what workers have memory ceilings.

    off: the operator wants no cgroups.
    """
    if groups is not None:
        return f"each worker has a memory ceiling by a cgroup in {groups.folder}"
    why = 'workers.cgroup is "off"' if off else "no cgroup is delegated to this server"
    return (
        f"the memory ceiling of workers counts private memory only: {why} (--log-level debug says "
        "more)"
    )


def details(groups: MemoryGroups | None, ceilings: Mapping[str, str]) -> str:
    """Returns a line for the log: which ceilings workers have, and what to do for more.

    ceilings: kind of worker -> its ceiling.
    """
    most = "; ".join(f"{kind}: {ceiling}" for kind, ceiling in ceilings.items())
    if groups is not None:
        return f"memory ceilings of workers: {most}"
    return (
        f"memory ceilings of workers: {most}. Shared memory of a worker is bounded by its own "
        "count, not by the system: for a ceiling on all of it let systemd delegate a cgroup "
        "(deploy/systemd/memory-ceiling.conf), or name one that the server may write to in "
        "workers.cgroup"
    )


def ceiling_of(*, emulated: bool, arrays: bool, grouped: bool) -> str:
    """Returns the ceiling of one kind of worker in words."""
    if not emulated:
        return f"the lease's memory and {format_bytes(DRIVER_OVERHEAD_BYTES)}"
    threads = f"{format_bytes(THREAD_BYTES)} for each processor"
    if arrays:
        rest = f"{format_bytes(ARRAYS_OVERHEAD_BYTES)}, and {threads}"
        return f"what the worker holds after its imports, the lease's memory, {rest}"
    if grouped:
        return f"the lease's memory, {format_bytes(OVERHEAD_BYTES)}, and {threads}"
    return f"the lease's memory and {format_bytes(_OWN_OVERHEAD_BYTES)}"


def _delegated(own: str | None) -> Path | None:
    """Returns the folder above our own cgroup if systemd has delegated it to us."""
    with contextlib.suppress(OSError, StopIteration):
        text = Path("/proc/self/cgroup").read_text() if own is None else own
        line = next(line for line in text.splitlines() if line.startswith("0::/"))
        folder = (_ROOT / line.removeprefix("0::/")).parent
        if folder != _ROOT and os.getxattr(folder, "user.delegate") == b"1":
            return folder
    return None


def _enable(folder: Path) -> None:
    """Enables memory limits for cgroups in `folder`; raises OSError if that fails."""
    control = folder / "cgroup.subtree_control"
    if control.exists():
        if "memory" not in control.read_text().split():
            _write(control, "+memory")
    elif not (folder / "memory.limit_in_bytes").exists():
        raise OSError("it is not a cgroup with a memory limit")
    if not os.access(folder, os.W_OK):
        raise PermissionError("this server may not write to it")


def _write(path: Path, value: int | str) -> None:
    """Writes with a single write call, as the kernel requires; the file must exist."""
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
