"""The data that daemon and workers share: messages, lease pages, logs."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import mmap
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rgpu_common.parts import native_library
from rgpu_server.core.model import PageState, Quota
from rgpu_server.tokens.protocol import LeaseIs, decode, encode
from rgpu_server.workers import pages
from rgpu_server.workers.compiler import namespace
from rgpu_server.workers.logs import LogPipe
from rgpu_server.workers.pages import Counters, LeasePage, map_page, slots
from rgpu_server.workers.process import WorkerOptions, first_report

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")
MIB = 1 << 20
CHARGE = """
import ctypes, os, signal, sys
native = ctypes.CDLL(sys.argv[1])
native.rgpu_lease_map.restype = ctypes.c_void_p
address = ctypes.c_void_p(native.rgpu_lease_map(int(sys.argv[2]), int(sys.argv[3]), 0))
slot, size = int(sys.argv[4]), ctypes.c_uint64(int(sys.argv[5]))
charged = [native.rgpu_lease_charge(address, slot, size) for _ in range(int(sys.argv[6]))]
print(sum(charged), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def charge(page: LeasePage, slot: int, size: int, times: int) -> subprocess.Popen[str]:
    """A process that charges `times` x `size` bytes, prints how often it could, and is killed."""
    return subprocess.Popen(
        [
            sys.executable,
            "-c",
            CHARGE,
            str(native_library()),
            *map(str, (page.grants_fd, page.usage_fd, slot, size, times)),
        ],
        pass_fds=[page.grants_fd, page.usage_fd],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_page_holds_its_limit_over_all_processes_and_forgets_the_dead() -> None:
    page = LeasePage(Quota(10 * MIB))
    try:
        page.take(0, 100)
        page.take(1, 101)
        both = [charge(page, slot, MIB, 8) for slot in (0, 1)]
        got = [int(process.communicate(timeout=60)[0]) for process in both]
        assert sum(got) == 10
        assert page.total([0, 1]) == Counters(used_bytes=10 * MIB, peak_bytes=10 * MIB, refused=6)
        page.clear(0)
        assert page.read(0) == Counters()
        assert page.total([1]).used_bytes == got[1] * MIB
        page.clear(1)
        assert page.total([]) == Counters(peak_bytes=max(got) * MIB, refused=6)
    finally:
        page.close()


def test_the_peak_of_two_sessions_is_not_above_what_the_lease_may_hold() -> None:
    page = LeasePage(Quota(10 * MIB))
    try:
        for slot in (0, 1):
            page.take(slot, 100 + slot)
            page.count(slot, 8 * MIB)
            page.release(slot, 8 * MIB)
        assert page.read(0).peak_bytes == 8 * MIB
        assert page.total([0, 1]).peak_bytes == 10 * MIB
    finally:
        page.close()


def test_what_a_worker_counts_fits_where_it_is_told() -> None:
    page = LeasePage(Quota(MIB))
    for session in (1, 2, 3):
        page.take(0, session)
        worst = struct.pack("=7Q", *[(1 << 64) - 1] * 7)
        ctypes.memmove(page.address + 4096 + 1024 + 8, worst, len(worst))
        assert page.total([0]).used_bytes == page.read(0).launches == (1 << 63) - 1
        page.clear(0)
    lease = LeaseIs("lease-1", "", 0, 0, 1, 1, 0, False, page.ended.numbers(), "")
    assert decode(encode(lease)) == lease
    page.close()


def test_a_page_that_cannot_be_made_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = os.listdir("/proc/self/fd")
    for module, name in ((os, "eventfd"), (pages, "map_page")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, refuse)
            with pytest.raises(OSError, match="Too many open files"):
                LeasePage(Quota(MIB))
        assert os.listdir("/proc/self/fd") == before


def test_a_resized_page_counts_at_once() -> None:
    page = LeasePage(Quota(10 * MIB))
    try:
        page.take(0, 100)
        page.update(Quota(2 * MIB, 1, 2), PageState.ACTIVE)
        assert int(charge(page, 0, MIB, 8).communicate(timeout=60)[0]) == 2
        page.update(Quota(MIB), PageState.ACTIVE)  # below what is held: nothing more, no error
        assert int(charge(page, 0, 1, 1).communicate(timeout=60)[0]) == 0
    finally:
        page.close()


def test_a_page_cannot_be_cut_or_grown() -> None:
    page = LeasePage(Quota(MIB))
    try:
        for fd in (page.grants_fd, page.usage_fd):
            for size in (0, 1024, 16384):
                with pytest.raises(PermissionError):
                    os.ftruncate(fd, size)
    finally:
        page.close()


def test_a_worker_cannot_write_what_is_granted() -> None:
    """The descriptor that it gets maps only to be read, and opens nothing that could be written."""
    page = LeasePage(Quota(MIB))
    fd = page.opened_to_read()
    try:
        with pytest.raises(PermissionError):
            map_page(fd, page.usage_fd)
        with pytest.raises(PermissionError):
            mmap.mmap(fd, 4096)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.pwrite(fd, b"x", 0)
        shown = mmap.mmap(fd, 4096, prot=mmap.PROT_READ)
        address = ctypes.c_void_p(map_page(fd, page.usage_fd, write_grants=False))
        library = ctypes.CDLL(None, use_errno=True)
        assert library.mprotect(address, ctypes.c_size_t(4096), mmap.PROT_READ | mmap.PROT_WRITE)
        assert ctypes.get_errno() == errno.EACCES
        page.update(Quota(2 * MIB), PageState.ACTIVE)
        assert struct.unpack_from("=Q", shown, 8) == (2 * MIB,)
        shown.close()
        # The file's mode keeps every process without the right to override modes from opening it
        # again.
        assert os.fstat(fd).st_mode & 0o777 == 0o400
        if os.geteuid():
            with pytest.raises(PermissionError):
                os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    finally:
        os.close(fd)
        page.close()


def test_slots_agree_with_the_layout() -> None:
    from rgpu_server.core.policy import Policy

    assert slots() == Policy().slots
    library = ctypes.CDLL(str(native_library()))
    assert library.rgpu_lease_page_bytes() == 12288


def test_tenants_do_not_share_a_part_of_the_cache() -> None:
    names = {namespace(tenant) for tenant in ("a", "b", "../a", "a/b", "")}
    assert len(names) == 5
    assert all(name.isalnum() for name in names)


@pytest.mark.asyncio
async def test_a_log_pipe_cuts_lines_and_removes_control_characters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "rgpu.worker")
    pipe = LogPipe("worker 1", 10_000)
    os.write(pipe.write_fd, b"one\n\x1b[31mtwo\xff\nno end")
    os.write(pipe.write_fd, b" yet\n" + b"x" * 3000)
    await asyncio.sleep(0)
    pipe.close()
    lines = [record.getMessage() for record in caplog.records]
    assert lines[:3] == ["worker 1: one", "worker 1: ?[31mtwo\ufffd", "worker 1: no end yet"]
    assert all(len(line) <= 1010 for line in lines)


@pytest.mark.parametrize(("emulated", "folders"), [(False, "/usr/local/nvidia/lib64"), (True, "")])
def test_a_worker_finds_the_compiler_of_its_driver(emulated: bool, folders: str) -> None:
    """NVIDIA's driver loads it by name, from a folder that may be mounted."""
    program = [sys.executable, str(FAKE_WORKER), "--mode", "folders"]
    library = Path("/usr/local/nvidia/lib64/libcuda.so.1")
    assert first_report(WorkerOptions(program, library, emulated=emulated)) == folders
