"""The processor time for CUDA C++ that a tenant's sessions share: charged, bounded, remembered."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from helpers.waiting import wait_until

from rgpu_emu import compile_sandbox
from rgpu_emu.compile_schedule import Bounds
from rgpu_server import session_compilers
from rgpu_server.arrays import nvrtc_server
from rgpu_server.arrays.places import Places
from rgpu_server.arrays.places_file import PlacesFile, make_file
from rgpu_server.arrays.source_compiler import CompilerLostError, SourceCompiler
from rgpu_server.config import CompilerLimits
from rgpu_server.isolation import Isolation
from rgpu_server.session_compilers import SessionCompilers

SOURCE = b"__global__ void f() {}"
# Makes 2 ** 60 types, one within the other: the compiler never comes to an end.
ENDLESS = b"""
template <int N, long K> struct Tree {
    static constexpr long any = Tree<N - 1, 2 * K>::any | Tree<N - 1, 2 * K + 1>::any;
};
template <long K> struct Tree<0, K> { static constexpr long any = K; };
__global__ void f(long* x) { *x = Tree<60, 1>::any; }
"""

# Has a place until it hears something.
HOLDS = (
    "import fcntl, sys; fcntl.lockf(int(sys.argv[1]), fcntl.LOCK_EX, 1, int(sys.argv[2])); "
    "print(flush=True); input()"
)


@pytest.fixture
def file() -> Iterator[int]:
    """The file of a tenant with two places and a burst of 100 s, at the time 0."""
    made = make_file(2, 100.0)
    yield made
    os.close(made)


def jobs(compiler: SourceCompiler) -> list[int]:
    """Returns the processes that compile for a worker."""
    pid = compiler._process.pid
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_what_is_spent_fills_again_at_a_quarter_of_a_processor(file: int) -> None:
    now = 0.0
    shared = PlacesFile(file, lambda: now)
    assert (shared.spent(), shared.over()) == (0.0, False)
    shared.spend(90.0)
    # Another worker's view is of the same file.
    assert PlacesFile(file, lambda: now).spent() == 90.0
    shared.spend(20.0)
    assert (shared.spent(), shared.over()) == (110.0, True)
    now = 80.0
    assert (shared.spent(), shared.over()) == (90.0, False)
    shared.spend(1000.0)
    assert shared.spent() == 120.0, "the debt is bounded, so that it is paid back"
    now = 10_000.0
    assert shared.spent() == 0.0


@contextmanager
def held(file: int, place: int) -> Iterator[None]:
    """Another process has a place: locks are a process's own."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS, f"{file}", f"{place}"],
        pass_fds=(file,), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"\n"
        yield
    finally:
        holder.communicate(b"\n")


def waits_for_nothing(places: Places) -> bool:
    """Whether no thread will touch the file any more."""
    with places._changed:
        return not places._waits


def test_beyond_the_burst_there_is_one_place(file: int) -> None:
    places, shared = Places(file), PlacesFile(file)
    with held(file, 0):
        with places.place(60):
            pass
        shared.spend(110.0)
        with (
            pytest.raises(RuntimeError, match=r"waited 0\.01 s.*of which 1 run"),
            places.place(0.01),
        ):
            pass
    wait_until(lambda: waits_for_nothing(places))


def test_who_waits_for_a_place_that_is_there_no_more_gets_the_first(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The burst ends while a job has each place. The one at the first place ends."""
    places = Places(file)
    monkeypatch.setattr(os, "getpid", lambda: 1)  # which decides what is waited for
    with held(file, 1):
        with held(file, 0):
            got = threading.Event()

            def take() -> None:
                with places.place(60):
                    got.set()

            thread = threading.Thread(target=take)
            thread.start()
            wait_until(lambda: places._waits)
            assert places._at == 1
            PlacesFile(file).spend(110.0)
        thread.join(60)
        assert got.is_set()
    wait_until(lambda: waits_for_nothing(places))


def test_who_waited_for_a_place_beyond_the_first_waits_again_once_the_burst_is_over(
    file: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = Places(file)
    given = iter((1, 0))
    monkeypatch.setattr(Places, "_take", lambda *_: next(given))
    PlacesFile(file).spend(110.0)
    with places.place(60):
        assert next(given, None) is None


def test_a_source_is_charged_and_runs_behind_all_others_beyond_the_burst() -> None:
    file = make_file(1, 100.0)
    try:
        with closing(SourceCompiler()) as compiler:
            compiler.share(file)
            compiler.compile(SOURCE, "k.cu", [])
            assert 0.0 < PlacesFile(file).spent() < 60.0
            PlacesFile(file).spend(1e6)
            thread = threading.Thread(target=lost, args=(compiler,))
            thread.start()
            wait_until(lambda: bool(jobs(compiler)) and idle(jobs(compiler)[0]))
            compiler._process.terminate()
            thread.join(60)
    finally:
        os.close(file)


def lost(compiler: SourceCompiler) -> None:
    with pytest.raises(CompilerLostError):
        compiler.compile(ENDLESS, "k.cu", [])


def idle(pid: int) -> bool:
    return os.sched_getscheduler(pid) == os.SCHED_IDLE


def test_a_source_whose_client_has_gone_is_charged() -> None:
    """Otherwise a client that hangs up in time would compile for nothing."""
    file = make_file(1, 100.0)
    compiler = SourceCompiler()
    try:
        compiler.share(file)
        compiler.compile(SOURCE, "k.cu", [])
        # So much that it does not fill again meanwhile.
        PlacesFile(file).spend(50.0)
        begun, before = time.monotonic(), PlacesFile(file).spent()
        threading.Thread(target=lost, args=(compiler,), daemon=True).start()
        wait_until(lambda: bool(jobs(compiler)))
        job = jobs(compiler)[0]
        wait_until(lambda: compile_sandbox.processor_seconds(job) > 0.2)
        used = compile_sandbox.processor_seconds(job)
        compiler._lost()
        compiler._process.wait(60)
        now = PlacesFile(file).spent()
        refilled = Bounds.refill * (time.monotonic() - begun)
        assert now > before + used / 2 - refilled
    finally:
        compiler.close()
        os.close(file)


def test_a_tenant_that_ends_its_sessions_still_owes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_compilers, "_MOST_IDLE", 1)
    compilers = SessionCompilers(None, CompilerLimits(burst_seconds=1e6), Isolation())
    first = compilers.places(1, "mallory")
    PlacesFile(first).spend(5e5)
    compilers.release(1)
    # A process that still compiled for the last session charges the same file.
    assert compilers.places(2, "mallory") == first
    compilers.release(2)
    # Others need the room; the debt is kept.
    for session, tenant in enumerate(("bob", "carol"), 3):
        compilers.places(session, tenant)
        compilers.release(session)
    assert "mallory" not in compilers._idle
    assert PlacesFile(compilers.places(9, "mallory")).spent() > 4e5
    compilers.close()


def test_the_report_names_what_a_job_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A regression: only what the process lacks that starts the jobs was told."""
    said: list[str] = []
    monkeypatch.setattr(nvrtc_server._Server, "serve", lambda _, report: said.append(report))
    monkeypatch.setattr(nvrtc_server, "enter_sandbox", lambda *_: None)
    # A machine whose system calls are not known.
    monkeypatch.setattr(compile_sandbox, "filter_program", lambda: None)
    ours, theirs = socket.socketpair()
    with ours:
        assert nvrtc_server.main(["--fd", f"{theirs.detach()}"]) == 0
    assert "system-calls: the list of this machine's calls is not known" in said[0]
