"""Calls of tenants take a bounded part of the process's time, and tenants take turns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from importlib import import_module
from pkgutil import iter_modules

import pytest

from rgpu_common import v1
from rgpu_server.core.identity import Identity, Proof
from rgpu_server.identity.pacing import KINDS, Kind, Pacing, kind_of

pytestmark = pytest.mark.asyncio
ALICE, BOB = (Identity(name, False, Proof.ACCESS_TOKEN) for name in ("alice", "bob"))
OPS = Identity("ops", True, Proof.ACCESS_TOKEN)
_SECONDS = 60.0


class Process:
    """A process that has worked for `worked` seconds at the time `now`."""

    def __init__(self) -> None:
        self.now = self.worked = 0.0
        self.done: list[str] = []
        self.pacing = Pacing(lambda: self.now, self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def _works(self, seconds: float) -> None:
        self.now += seconds
        self.worked += seconds

    async def work(self, whose: Identity, seconds: float) -> str:
        """Works, waits for something else, and works again."""
        self._works(seconds / 2)
        await asyncio.sleep(0)
        self._works(seconds / 2)
        self.done.append(str(whose.tenant))
        return f"answer for {whose.tenant}"

    async def asks(self, whose: Identity, seconds: float, kind: Kind = Kind.LOOK) -> str:
        return await self.pacing.answer(kind, whose, "10.0.0.1", self.work(whose, seconds))


async def with_many_looks() -> tuple[Process, list[asyncio.Future[str]]]:
    """Returns a process at which the looks of a tenant wait, after it has used up the burst."""
    process = Process()
    for _ in range(20):
        await process.asks(ALICE, 0.1)
    looks = [asyncio.ensure_future(process.asks(ALICE, 0.1)) for _ in range(50)]
    await asyncio.sleep(0)
    process.done.clear()
    return process, list(looks)


async def test_calls_of_a_tenant_take_a_quarter_of_the_time_after_a_burst() -> None:
    process = Process()
    for _ in range(200):
        assert await process.asks(ALICE, 0.1) == "answer for alice"
    assert process.worked == pytest.approx(20.0)
    assert process.now >= 4 * (process.worked - 0.5 - 0.1)


async def test_a_tenant_waits_for_one_call_of_another_and_an_operator_for_none() -> None:
    process, asked = await with_many_looks()
    asked += [asyncio.ensure_future(process.asks(one, 0.1)) for one in (BOB, OPS)]
    await asyncio.wait_for(asyncio.gather(*asked), _SECONDS)
    assert process.done.index("ops") <= 1
    assert process.done.index("bob") <= 5
    assert len(process.done) == 52


async def test_an_expensive_call_is_soon_forgotten() -> None:
    process = Process()
    await process.asks(ALICE, 1000.0)
    before = process.now
    await process.asks(BOB, 0.0)
    assert process.now - before <= 2.0


async def test_what_a_call_waits_for_does_not_count() -> None:
    process, over = Process(), asyncio.Event()

    async def waits() -> None:
        await over.wait()

    waiting = asyncio.ensure_future(process.pacing.answer(Kind.LOOK, ALICE, "", waits()))
    await asyncio.sleep(0)
    await process.asks(OPS, 1000.0)
    over.set()
    await asyncio.wait_for(waiting, _SECONDS)
    before = process.now
    await process.asks(BOB, 0.0)
    assert process.now == before


async def test_errors_and_cancellations_reach_the_work() -> None:
    process, ended = Process(), list[str]()

    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("hangs")

    with pytest.raises(ValueError, match="no"):
        await process.pacing.answer(Kind.LOOK, ALICE, "", fails())
    task = asyncio.ensure_future(process.pacing.answer(Kind.LOOK, ALICE, "", hangs()))
    for _ in range(3):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["hangs"]


@pytest.mark.parametrize("whose", [ALICE, OPS])
async def test_a_stream_is_closed_with_its_caller(whose: Identity) -> None:
    process, ended = Process(), list[str]()

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(100):
                process._works(0.1)
                yield number
        finally:
            ended.append("numbers")

    stream = process.pacing.stream(Kind.LOOK, whose, "", numbers())
    assert [await stream.__anext__() for _ in range(3)] == [0, 1, 2]
    await stream.aclose()
    assert ended == ["numbers"]
    assert [one async for one in process.pacing.stream(Kind.LOOK, whose, "", numbers())][-1] == 99


@pytest.mark.parametrize("kind", [Kind.CHANGE, Kind.GLANCE])
async def test_what_has_to_be_soon_does_not_wait_for_the_same_tenants_looks(kind: Kind) -> None:
    process, looks = await with_many_looks()
    await asyncio.wait_for(process.asks(ALICE, 0.0, kind), _SECONDS)
    assert len(process.done) <= 3
    await asyncio.wait_for(asyncio.gather(*looks), _SECONDS)


async def test_a_flood_of_changes_holds_another_tenant_up_for_a_turn() -> None:
    process = Process()
    flood = [asyncio.ensure_future(process.asks(ALICE, 0.1, Kind.CHANGE)) for _ in range(50)]
    await asyncio.sleep(0)
    other = asyncio.ensure_future(process.asks(BOB, 0.1, Kind.CHANGE))
    await asyncio.wait_for(asyncio.gather(*flood, other), _SECONDS)
    assert process.done.index("bob") <= 4


async def test_changes_never_wait_for_time_that_was_used() -> None:
    process = Process()
    for _ in range(20):
        await process.asks(ALICE, 1.0, Kind.CHANGE)
    assert process.now == process.worked


async def test_each_method_of_each_service_is_decided() -> None:
    methods = {
        f"{service.name}/{method.name}": f"/{service.full_name}/{method.name}"
        for found in iter_modules(v1.__path__)
        if found.name.endswith("_pb2")
        for service in import_module(
            f"{v1.__name__}.{found.name}"
        ).DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert set(methods) == set(KINDS)
    assert all(kind_of(full) is KINDS[short] for short, full in methods.items())
