"""The daemon measures what array workers hold, and ends a session that holds more than its lease.

A worker charges its own session. Here its charges are taken back behind its back, as an operation
of a library could do that writes where it must not.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from helpers import clients
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_server.arrays.ledger import Ledger
from rgpu_server.memory_watch import MemoryWatch
from rgpu_server.workers.groups import THREAD_BYTES
from rgpu_server.workers.memory_check import ALLOWANCE_BYTES, MemoryCheck, Seat, held_bytes
from rgpu_server.workers.pages import map_page, slots

MIB = 1 << 20
LEASE = 64 * MIB
PIECE = 48 * MIB
POOL = "emulated/cupy"
ALLOWED = ALLOWANCE_BYTES + THREAD_BYTES * len(os.sched_getaffinity(0))
AT_FIRST = 300 * MIB
A, B, OTHER = Seat(1, "lease-1", POOL, 11), Seat(2, "lease-1", POOL, 12), Seat(3, "x", POOL, 13)
LEASES = {"lease-1": LEASE, "x": LEASE}


class Processes:
    """What the system says; pid -> bytes beyond what a worker holds at first and is allowed."""

    def __init__(self) -> None:
        self.beyond: dict[int, int | None] = {1: -ALLOWED, 2: -ALLOWED - MIB}
        self.check = MemoryCheck(self._read)
        self.check.ready(POOL, 1)
        self.check.ready(POOL, 2)

    def _read(self, pid: int) -> int | None:
        beyond = self.beyond.get(pid)
        return None if beyond is None else AT_FIRST + ALLOWED + beyond

    def look(self, *seats: Seat) -> list[tuple[Seat, int]]:
        return self.check.too_much(self.check.measure(seats), LEASES)


def test_the_largest_session_of_a_lease_is_ended_at_the_second_look() -> None:
    processes = Processes()
    processes.beyond |= {11: 40 * MIB, 12: 41 * MIB, 13: LEASE}
    assert processes.look(A, B, OTHER) == []
    assert processes.look(A, B, OTHER) == [(B, 81 * MIB)]


def test_a_moment_above_the_lease_ends_nothing() -> None:
    processes = Processes()
    for more in (1, 0, 1, 0, 1):
        processes.beyond[11] = LEASE + more
        assert processes.look(A) == []


def test_what_a_worker_is_allowed_beside_its_lease_is_not_counted() -> None:
    processes = Processes()
    processes.beyond |= {11: LEASE, 12: 0}
    for _ in range(3):
        assert processes.look(A, B) == []


def test_a_process_that_is_gone_and_a_pool_that_is_not_known_are_left_out() -> None:
    processes = Processes()
    processes.beyond |= {11: None, 12: 9 * LEASE}
    unknown = Seat(4, "lease-1", "emulated/torch", 12)
    for _ in range(3):
        assert processes.look(A, unknown) == []


def test_the_system_counts_private_and_shared_memory() -> None:
    before = held_bytes(os.getpid())
    assert before is not None
    # Mappings of its own: malloc may take memory that the process has already.
    alone = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    with mmap.mmap(-1, 64 * MIB) as shared, mmap.mmap(-1, 64 * MIB, flags=alone):
        shared.write(b"1" * (64 * MIB))
        after = held_bytes(os.getpid())
    assert after is not None
    assert after - before >= 120 * MIB
    assert held_bytes(1 << 30) is None


class Failing:
    """A conductor whose sessions can be read at the second look only."""

    def __init__(self) -> None:
        self.looked = asyncio.Event()
        self.workers: dict[int, object] = {}
        self.node = self
        self._looks = 0

    @property
    def sessions(self) -> list[object]:
        self._looks += 1
        if self._looks == 1:
            raise RuntimeError("the first look fails")
        self.looked.set()
        return []


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgpu_server.memory_watch._LOOK_SECONDS", 0.0)

    async def look() -> None:
        failing = Failing()
        watch = MemoryWatch(failing)  # type: ignore[arg-type]
        watch.start()
        await asyncio.wait_for(failing.looked.wait(), 30)
        await watch.close()

    asyncio.run(look())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server() as one:
        yield one


class Program:
    """Allocates `PIECE` bytes for each line that it gets, and says so, or why not."""

    def __init__(self, server: Server, lease: str, memory: int = LEASE) -> None:
        source = f"""
        import rgpu_client.cupy as cp
        kept = []
        while True:
            input()
            try:
                kept.append(cp.ones({PIECE}, dtype=cp.int8))
                print(int(kept[-1][5]), flush=True)
            except Exception as error:
                print(type(error).__name__, error, flush=True)
        """
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", textwrap.dedent(source)], cwd="/", text=True,
            env=clients.environment(server.unix, RGPU_LEASE=lease, RGPU_MEMORY=str(memory)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def allocates(self) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def charges(server: Server) -> Iterator[list[Ledger]]:
    """The charges of all sessions of the server's only lease with `LEASE` bytes."""
    assert server.process is not None
    folder = Path(f"/proc/{server.process.pid}/fd")
    files = [one for one in folder.iterdir() if "memfd:rgpu-lease" in os.readlink(one)]
    files.sort(key=lambda file: int(file.name))
    # Nobody may write what is granted.
    granted = [os.open(one, os.O_RDONLY) for one in files if not one.stat().st_mode & 0o200]
    used = [os.open(one, os.O_RDWR) for one in files if one.stat().st_mode & 0o200]
    pages = [map_page(*pair, write_grants=False) for pair in zip(granted, used, strict=True)]
    (page,) = [one for one in pages if Ledger(one, 0).limit == LEASE]
    try:
        yield [Ledger(page, slot) for slot in range(slots())]
    finally:
        for fd in (*granted, *used):
            os.close(fd)


def test_a_session_that_claims_less_than_it_holds_ends_and_an_honest_one_does_not(
    server: Server,
) -> None:
    told = ["1"]

    def is_ended() -> bool:
        if told.count("1") < ALLOWED // PIECE + 4:
            for ledger in ledgers:
                ledger.release(ledger.own)
        told.append(liar.allocates())
        return "of the node's memory" in told[-1]

    with (
        closing(Program(server, "honest", LEASE + MIB)) as honest,
        closing(Program(server, "liar")) as liar,
    ):
        for one in (honest, liar):
            assert one.allocates() == "1"
            assert one.allocates().startswith("OutOfMemoryError")
        with charges(server) as ledgers:
            wait_until(is_ended)
        # The server has looked at both.
        assert honest.allocates().startswith("OutOfMemoryError")
    assert "the sessions of lease 'liar' of tenant 'default' hold" in told[-1]
    assert "and it has 64 MiB: ask for more memory" in told[-1]
