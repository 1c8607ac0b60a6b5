"""Two tenants compete while the daemon, the token loop or its clock fails."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from helpers.ends import left_files, shared_files
from helpers.figures import figures
from helpers.server import Server
from helpers.waiting import wait_until

from quota.conftest import loop_of
from quota.tenant import MS, SECOND, Run, Tenant, overlap, part, shares, tenants
from rgpu_client.control import ControlClient
from rgpu_common.endpoints import parse_endpoint

pytestmark = pytest.mark.measures

MIB = 1 << 20
KERNEL = 2 * MS
ASKS = (
    {"lease_key": "a", "share_request_ppm": 300_000, "memory_bytes": 64 * MIB},
    {"lease_key": "b", "share_request_ppm": 700_000, "memory_bytes": 64 * MIB},
)
SHARES = [0.3, 0.7]
NEAR = 0.12
# The loop's clock: the machine's, and an offset that the test sets.
CLOCK = """
import mmap, struct, sys, time
if "rgpu_server.tokens" in sys.orig_argv:
    with open({path!r}, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 8)
    true = time.monotonic_ns
    time.monotonic_ns = lambda: true() + struct.unpack("q", shared[:8])[0]
"""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """These servers end within their tests."""
    shared = shared_files()
    yield
    wait_until(lambda: left_files() <= shared)  # other tests have files, too


def show(runs: Sequence[Sequence[Run]], *marks: int) -> None:
    """For whoever reads a failure: hundredths of each 100 ms, and where the test looked."""
    begin = min(r[0].begin for r in runs)
    print([(mark - begin) // (100 * MS) for mark in marks])
    for tenant in runs:
        steps = range(begin, max(r[-1].end for r in runs), 100 * MS)
        print([round(100 * part(tenant, at, at + 100 * MS)) for at in steps])


def pass_by(ns: int) -> int:
    """Waits until the device's clock has advanced by `ns`; returns its time."""
    until = time.time_ns() + ns
    wait_until(lambda: time.time_ns() >= until)
    return time.time_ns()


def compete(pair: Sequence[Tenant], seconds: float) -> int:
    """Queues work in proportion to the shares; when both have begun."""
    for tenant, share in zip(pair, SHARES, strict=True):
        for _ in range(round(seconds * SECOND * share / KERNEL)):
            tenant.hold(KERNEL)
    return pass_by(200 * MS)


def sessions(server: Server) -> dict[str, int]:
    """Lease key -> worker."""
    with ControlClient(parse_endpoint(server.unix)) as client:
        return {s.lease_key: s.worker_pid for s in client.sessions()}


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.full
def test_a_daemon_that_is_killed_and_started_again(tmp_path: Path) -> None:
    state = ("--state-dir", str(tmp_path / "state"))
    with ExitStack() as ends, Server(*state) as first:
        pair = ends.enter_context(tenants(first, *ASKS))
        there, loop = sessions(first), loop_of(first)
        compete(pair, 2.8)
        begin = pass_by(SECOND // 2)
        pass_by(SECOND // 2)
        assert first.process is not None
        kill(first.process.pid)
        first.process.wait()
        killed = time.time_ns()
        with Server(*state) as second:
            started = time.time_ns()
            assert sessions(second) == there
            with ControlClient(parse_endpoint(second.unix)) as control:
                assert {x.key: x.quota.share_request_ppm for x in control.leases()} == {
                    "a": 300_000,
                    "b": 700_000,
                }
            runs = [tenant.runs() for tenant in pair]
            assert [len(r) for r in runs] == [round(2.8 * SECOND * s / KERNEL) for s in SHARES]
            assert overlap(*runs) == 0
            last = min(r[-1].end for r in runs)
            show(runs, begin, killed, started, last)
            ends.close()
            wait_until(lambda: not sessions(second))
    wait_until(lambda: not Path(f"/proc/{loop}").exists())
    with figures():
        assert shares(runs, begin, killed) == pytest.approx(SHARES, abs=NEAR)
        assert shares(runs, started, last) == pytest.approx(SHARES, abs=NEAR)


def test_a_loop_that_is_killed(tmp_path: Path) -> None:
    """Workers end their slices, the next loop finds them, and the shares are as before."""
    with Server("--state-dir", str(tmp_path / "state")) as server, tenants(server, *ASKS) as pair:
        there, loop = sessions(server), loop_of(server)
        compete(pair, 2.8)
        begin = pass_by(SECOND // 2)
        pass_by(SECOND // 2)
        kill(loop)
        killed = time.time_ns()
        wait_until(lambda: any(pid != loop for pid in _loops(server)))
        runs = [tenant.runs() for tenant in pair]
        assert sessions(server) == there
        assert [len(r) for r in runs] == [round(2.8 * SECOND * s / KERNEL) for s in SHARES]
        assert overlap(*runs) == 0
        later = [run.begin for run in runs[0] if run.begin > killed + 50 * MS]
        again = min(later, default=killed)
        last = min(r[-1].end for r in runs)
        show(runs, begin, killed, again, last)
        with figures():
            assert later
            assert shares(runs, begin, killed) == pytest.approx(SHARES, abs=NEAR)
            assert shares(runs, again + 200 * MS, last) == pytest.approx(SHARES, abs=NEAR)


def _loops(server: Server) -> list[int]:
    try:
        return [loop_of(server)]
    except (ValueError, OSError):
        return []


def test_a_loop_that_is_stopped_for_a_while(tmp_path: Path) -> None:
    """No worker is ended because the loop was stopped."""
    with Server("--state-dir", str(tmp_path / "state")) as server, tenants(server, *ASKS) as pair:
        there, loop = sessions(server), loop_of(server)
        compete(pair, 2.5)
        os.kill(loop, signal.SIGSTOP)
        pass_by(SECOND + SECOND // 5)
        os.kill(loop, signal.SIGCONT)
        again = time.time_ns()
        runs = [tenant.runs() for tenant in pair]
        assert sessions(server) == there
        assert overlap(*runs) == 0
        last = min(r[-1].end for r in runs)
        with figures():
            assert shares(runs, again + 300 * MS, last) == pytest.approx(SHARES, abs=NEAR)


@pytest.mark.full
@pytest.mark.parametrize("hours", [1, -1])
def test_the_loops_clock_jumps(tmp_path: Path, hours: int) -> None:
    """The clocks of the workers are right, so no session is ended and all work is done."""
    offset = tmp_path / "offset"
    offset.write_bytes(bytes(8))
    (tmp_path / "sitecustomize.py").write_text(CLOCK.format(path=str(offset)))
    state = ("--state-dir", str(tmp_path / "state"))
    with (
        offset.open("r+b") as file,
        mmap.mmap(file.fileno(), 8) as shared,
        Server(*state, PYTHONPATH=str(tmp_path)) as server,
        tenants(server, *ASKS) as pair,
    ):
        there, loop = sessions(server), loop_of(server)
        compete(pair, 1.5)
        shared[:8] = struct.pack("q", hours * 3600 * SECOND)
        pass_by(SECOND // 2)
        shared[:8] = bytes(8)
        runs = [tenant.runs() for tenant in pair]
        assert sessions(server) == there
        assert loop_of(server) == loop
        assert [len(r) for r in runs] == [round(1.5 * SECOND * s / KERNEL) for s in SHARES]
