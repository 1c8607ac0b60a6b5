"""Memory cgroups of workers, in folders that look like the kernel's."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.needs import needs
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.errors import DeviceError
from rgpu_server.arrays import ceiling as arrays_ceiling
from rgpu_server.workers.groups import (
    ARRAYS_OVERHEAD_BYTES,
    DRIVER_OVERHEAD_BYTES,
    OVERHEAD_BYTES,
    THREAD_BYTES,
    MemoryGroup,
    MemoryGroups,
    ceiling_bytes,
    ceiling_of,
    describe,
    details,
    open_groups,
)
from rgpu_server.workers.process import WorkerOptions, WorkerProcess

GIB = 1 << 30
NONE_V1 = "9223372036854771712\n"


class _Silent:
    def worker_said(self, worker: int, message: object, fds: object) -> None:
        del worker, message, fds

    def worker_exited(self, worker: int, reason: str) -> None:
        del worker, reason


def parent(folder: Path, *, v2: bool) -> Path:
    """A delegated cgroup."""
    if v2:
        (folder / "cgroup.subtree_control").write_text("cpu\n")
    else:
        (folder / "memory.limit_in_bytes").write_text(NONE_V1)
    return folder


def group(folder: Path, pid: int, *, v2: bool) -> Path:
    """Makes the files that the kernel puts into a new control group."""
    made = folder / f"rgpu-worker-{pid}"
    made.mkdir()
    (made / "cgroup.procs").write_text("")
    if v2:
        (made / "memory.max").write_text("max\n")
        (made / "memory.swap.max").write_text("max\n")
        (made / "memory.events").write_text("low 0\noom 0\noom_kill 0\n")
    else:
        (made / "memory.limit_in_bytes").write_text(NONE_V1)
        (made / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n")
    return made


@pytest.mark.parametrize("v2", [True, False])
def test_a_worker_gets_a_ceiling_that_is_only_raised(tmp_path: Path, v2: bool) -> None:
    groups = open_groups(str(parent(tmp_path, v2=v2)))
    assert groups is not None
    if v2:
        assert "+memory" in (tmp_path / "cgroup.subtree_control").read_text()
    made = group(tmp_path, 77, v2=v2)
    mine = groups.add(77)
    assert mine is not None
    assert (made / "cgroup.procs").read_text() == "77"
    ceiling = made / ("memory.max" if v2 else "memory.limit_in_bytes")
    for wanted, there in ((GIB, GIB), (4 * GIB, 4 * GIB), (2 * GIB, 4 * GIB)):
        mine.limit(wanted)
        assert int(ceiling.read_text()) == there
    mine.raise_by(GIB)
    assert int(ceiling.read_text()) == 5 * GIB
    assert not mine.killed()
    events = made / ("memory.events" if v2 else "memory.oom_control")
    events.write_text(events.read_text().replace("oom_kill 0", "oom_kill 1"))
    assert mine.killed()
    assert groups.of(77) == mine
    assert groups.of(78) is None


def test_what_a_worker_may_hold() -> None:
    threads = len(os.sched_getaffinity(0))
    assert ceiling_bytes(GIB, emulated=True) == GIB + OVERHEAD_BYTES + threads * THREAD_BYTES
    assert ceiling_bytes(GIB, emulated=False) == GIB + DRIVER_OVERHEAD_BYTES
    measured = ceiling_bytes(GIB, emulated=True, at_first=77)
    assert measured == 77 + GIB + ARRAYS_OVERHEAD_BYTES + threads * THREAD_BYTES
    assert ARRAYS_OVERHEAD_BYTES == arrays_ceiling.OVERHEAD_BYTES


@pytest.mark.parametrize("v2", [True, False])
def test_an_array_workers_ceiling_is_what_it_held_and_its_lease(tmp_path: Path, v2: bool) -> None:
    """The worker is a real process; its cgroup's files only look like the kernel's."""
    groups = open_groups(str(parent(tmp_path, v2=v2)))
    assert groups is not None

    class Groups(MemoryGroups):
        def add(self, pid: int) -> MemoryGroup | None:
            made = group(tmp_path, pid, v2=v2)
            (made / ("memory.current" if v2 else "memory.usage_in_bytes")).write_text("12345\n")
            return super().add(pid)

    def ceiling() -> int:
        (file,) = tmp_path.glob("rgpu-worker-*/memory." + ("max" if v2 else "limit_in_bytes"))
        return int(file.read_text())

    async def served() -> list[int]:
        options = WorkerOptions(
            ["/bin/sleep", "infinity"], Path("/nowhere"), groups=Groups(tmp_path)
        )
        worker = WorkerProcess(1, options, _Silent())
        found = []
        try:
            worker.has_imported()
            for lease in (GIB, 3 * GIB, 2 * GIB, 4 * GIB):
                worker.serves("a", lease)
                found.append(ceiling())
        finally:
            worker.kill()
            worker.abandon()
        return found

    first = ceiling_bytes(GIB, emulated=True, at_first=12345)
    got = asyncio.run(served())
    assert got == [first, first + 2 * GIB, first + 2 * GIB, first + 3 * GIB]


def test_a_group_that_cannot_be_made_is_none(tmp_path: Path) -> None:
    assert MemoryGroups(tmp_path / "gone").add(5) is None
    assert MemoryGroups(tmp_path).add(5) is None, "no cgroup.procs appears in a plain folder"
    assert not (tmp_path / "rgpu-worker-5").exists()
    MemoryGroup(tmp_path / "gone").remove()


def test_a_folder_that_is_no_cgroup_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"workers.cgroup: .* cannot be used"):
        open_groups(str(tmp_path))
    assert open_groups("off") is None


def test_only_a_delegated_folder_is_taken_unasked() -> None:
    assert open_groups("auto", "0::/system.slice/nowhere.service/server\n") is None
    assert open_groups("auto", "4:memory:/elsewhere\n") is None


def test_one_line_says_which_ceilings_workers_have_and_what_to_do(tmp_path: Path) -> None:
    alone = ceiling_of(emulated=True, arrays=False, grouped=False)
    assert alone == "the lease's memory and 4 GiB"
    one = ceiling_of(emulated=True, arrays=False, grouped=True)
    assert one.startswith("the lease's memory, 1 GiB, and 8 MiB")
    for grouped in (False, True):
        arrays = ceiling_of(emulated=True, arrays=True, grouped=grouped)
        assert "holds after its imports, the lease's memory, 256 MiB, and 8 MiB for" in arrays
        gpu = ceiling_of(emulated=False, arrays=True, grouped=grouped)
        assert gpu == "the lease's memory and 32 GiB"
    both = {"emulated": "A", "emulated/cupy": "B"}
    by_group = MemoryGroups(tmp_path)
    assert describe(by_group, off=False).endswith(f"by a cgroup in {tmp_path}")
    assert details(by_group, both).endswith(": emulated: A; emulated/cupy: B")
    assert "only: no cgroup is delegated to this server" in describe(None, off=False)
    without = details(None, both)
    assert ": emulated: A; emulated/cupy: B. Shared memory of a worker" in without
    assert "let systemd delegate a cgroup (deploy/systemd/memory-ceiling.conf), or" in without
    assert 'only: workers.cgroup is "off"' in describe(None, off=True)


def test_a_server_says_once_which_ceilings_its_workers_have() -> None:
    with Server() as server:
        wait_until(lambda: "memory ceiling" in server.told())
        lines = [line for line in server.told().splitlines() if "ceiling" in line]
    assert len(lines) == 1, lines
    assert len(lines[0].partition(" INFO ")[2]) < 160, "behind it is what the server does"


def test_what_ended_workers_left_is_swept(tmp_path: Path) -> None:
    (tmp_path / "rgpu-worker-9").mkdir()
    (tmp_path / "other").mkdir()
    open_groups(str(parent(tmp_path, v2=True)))
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_dir()) == ["other"]


@needs("cgroup")
def test_the_system_holds_the_ceiling() -> None:
    groups = open_groups(os.environ["RGPU_TEST_CGROUP"])
    assert groups is not None
    take = "import sys; sys.stdin.readline(); x = bytearray(512 << 20)"
    process = subprocess.Popen([sys.executable, "-c", take], stdin=subprocess.PIPE)
    mine = groups.add(process.pid)
    assert mine is not None
    mine.limit(128 << 20)
    process.communicate(b"\n", timeout=60)
    assert process.returncode == -9
    assert mine.killed()
    mine.remove()
    assert groups.of(process.pid) is None
