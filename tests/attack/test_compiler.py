"""A tenant that floods the PTX compiler stays within its bounds, and another is served beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from rgpu_common.wire.compiler import (
    HEAD_BYTES,
    Load,
    Lower,
    MessageType,
    decode_head,
    decode_loaded,
    decode_lowered,
    encode_load,
    encode_lower,
)
from rgpu_emu.compile_schedule import Debts
from rgpu_server.config import CompilerLimits
from rgpu_server.workers.compiler import Compilers, namespace

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
LIMITS = CompilerLimits(processes=2, memory_bytes=2 << 30, cache_bytes=1 << 20)
SESSIONS = 20
SECONDS = 60


def kernel(lines: int, comment: str = "") -> str:
    """A kernel that takes a tenth of a second for every few hundred lines, and stays large."""
    body = "".join(
        f"  fma.rn.f64 %d{n % 13}, %d{n % 7}, %d{n % 11}, %d{n % 5}; sqrt.rn.f64 %d{n % 5}, %d{n % 13};\n"
        for n in range(lines)
    )
    start = "".join(f"  ld.global.f64 %d{n}, [%p+{8 * n}];\n" for n in range(14))
    end = "".join(f"  st.global.f64 [%p+{8 * n}], %d{n};\n" for n in range(14))
    return (
        f"{HEAD}// {comment}\n.visible .entry k(.param .u64 p)\n{{\n .reg .f64 %d<14>; .reg .b64 %p;\n"
        f" ld.param.u64 %p, [p];\n{start}{body}{end}  ret;\n}}\n"
    )


class Session:
    """A session of a tenant at its compiler, with the connection that its worker has."""

    all: ClassVar[list[Session]] = []

    def __init__(self, compilers: Compilers, tenant: str) -> None:
        self._sock = compilers.connect(tenant)
        self._sock.setblocking(False)
        self.all.append(self)

    async def ask(self, request: bytes, kind: MessageType) -> bytes:
        """The body of the answer, which must be of this kind."""
        await asyncio.get_running_loop().sock_sendall(self._sock, request)
        head = decode_head(await self._take(HEAD_BYTES))
        assert head.message is kind
        return await self._take(head.body_bytes)

    async def compile(self, text: str) -> int:
        """The CUresult of loading a module and lowering its kernel."""
        request = encode_load(Load((text.encode(),)))
        loaded = decode_loaded(await self.ask(request, MessageType.LOADED))
        if loaded.result != 0:
            return loaded.result
        request = encode_lower(Lower(loaded.key, "k"))
        return decode_lowered(await self.ask(request, MessageType.LOWERED)).result

    async def _take(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = await asyncio.get_running_loop().sock_recv(self._sock, count - len(data))
            assert more, "the compiler closed the connection"
            data += more
        return data

    def close(self) -> None:
        self._sock.close()


@asynccontextmanager
async def serving(folder: Path, limits: CompilerLimits) -> AsyncIterator[Compilers]:
    compilers = Compilers(folder, limits)
    try:
        yield compilers
    finally:
        for session in Session.all:
            session.close()
        Session.all.clear()
        compilers.close()


def compiler_of(compilers: Compilers, tenant: str) -> int:
    return compilers._tenants[tenant].process.pid


def children(pid: int) -> list[int]:
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def bytes_in(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder))


def held_below(folder: Path) -> list[str]:
    """Returns the files and folders below a folder that this process has open."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # that of the listing itself
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(str(folder))]


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        await asyncio.sleep(0.01)


async def timed(session: Session, comment: str) -> float:
    started = time.monotonic()
    assert await session.compile(kernel(20, comment)) == 0
    return time.monotonic() - started


async def flood(session: Session, number: int) -> None:
    n = 0
    while True:
        n += 1
        assert await session.compile(kernel(900, f"{number} {n}")) in (0, 2, 801)


@pytest.mark.asyncio
async def test_the_server_keeps_no_folder_of_a_tenant_open(tmp_path: Path) -> None:
    async with serving(tmp_path, CompilerLimits()) as compilers:
        for tenant in ("a", "b", "a"):
            compilers.connect(tenant).close()
        assert len(os.listdir(tmp_path)) == 2
        assert not held_below(tmp_path)


@pytest.mark.asyncio
async def test_a_flood_from_one_tenant_stays_in_its_bounds_and_another_is_served(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, LIMITS) as compilers:
        bob = Session(compilers, "bob")
        assert await bob.compile(kernel(20, "its compiler has started")) == 0
        alone = sorted([await timed(bob, f"alone {n}") for n in range(5)])[2]
        hostile = [Session(compilers, "mallory") for _ in range(SESSIONS)]
        tasks = [asyncio.create_task(flood(session, n)) for n, session in enumerate(hostile)]
        mallory = compiler_of(compilers, "mallory")
        theirs = tmp_path / namespace("mallory")
        await until(lambda: len(children(mallory)) == LIMITS.processes)
        times = []
        for n in range(10):
            times.append(await timed(bob, f"beside {n}"))
            jobs = children(mallory)
            assert len(jobs) <= LIMITS.processes
            for pid in jobs:
                assert_bounded(pid)
            assert bytes_in(theirs) <= LIMITS.cache_bytes
        print(f"a neighbour's load: {sorted(times)[5] / alone:.1f} times what it takes alone")
        assert not any(task.done() for task in tasks), "the flood went on"
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert compiler_of(compilers, "bob") != mallory
        assert sorted(os.listdir(tmp_path)) == sorted(map(namespace, ("bob", "mallory")))


def assert_bounded(pid: int) -> None:
    """Asserts that the kernel bounds a job's memory, and gives it a lower priority than
    sessions.
    """
    try:
        limits = Path(f"/proc/{pid}/limits").read_text()
        nice = os.getpriority(os.PRIO_PROCESS, pid)
    except (FileNotFoundError, ProcessLookupError):
        return  # the job was replaced meanwhile
    (line,) = [line for line in limits.splitlines() if line.startswith("Max address space")]
    soft = line.split()[3]
    assert soft == "unlimited" or int(soft) * LIMITS.processes <= LIMITS.memory_bytes
    assert nice >= 0


@pytest.mark.asyncio
async def test_who_has_spent_too_much_runs_behind_all_others_also_in_a_new_compiler(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, LIMITS) as compilers:
        kept: list[tuple[str, float]] = []
        monitored = Debts()
        monitored.keep("mallory", 1000.0, 0.0, time.monotonic())
        monitored.keep = lambda tenant, spent, *_: kept.append((tenant, spent))  # type: ignore[method-assign]
        compilers._debts = monitored
        hostile = Session(compilers, "mallory")
        compiler = compiler_of(compilers, "mallory")
        assert await hostile.compile(kernel(20)) == 0
        jobs = children(compiler)
        assert [os.sched_getscheduler(pid) for pid in jobs] == [os.SCHED_IDLE]
        hostile.close()
        os.kill(compiler, signal.SIGTERM)
        await until(lambda: bool(kept))
        (tenant, spent) = kept[0]
        assert tenant == "mallory"
        assert spent > 900.0, "what it owed counts with what it spent"


@pytest.mark.asyncio
async def test_a_tenant_keeps_its_compiled_kernels_after_a_connection_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server without free descriptors makes no socket pair. The next session of the tenant gets
    a compiler that knows the tenant's folder.
    """

    def no_descriptor(*_: object) -> None:
        raise OSError(24, "Too many open files")

    async with serving(tmp_path, LIMITS) as compilers:
        compilers.start()
        with monkeypatch.context() as patched:
            patched.setattr("rgpu_server.workers.compiler.socket.socketpair", no_descriptor)
            with pytest.raises(OSError, match="Too many open files"):
                compilers.connect("alice")
        alice = Session(compilers, "alice")
        assert await alice.compile(kernel(20)) == 0
        await until(lambda: bytes_in(tmp_path / namespace("alice")) > 0)
