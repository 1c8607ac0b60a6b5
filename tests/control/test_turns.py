"""Questions to a server's record: tenants take turns, and operators do not wait for tenants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from rgpu_common.v1 import observe_pb2
from rgpu_server.core.identity import Identity, Proof
from rgpu_server.identity.guard import Known, acting_as
from rgpu_server.service import observing
from rgpu_server.service.callers import Caller

pytestmark = pytest.mark.asyncio

_SECONDS = 60


class Gate:
    """Stands for the reading of the record; each reading waits for `go`."""

    def __init__(self) -> None:
        self.began = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def lines_of(self, *_: object, **__: object) -> list[object]:
        self.began.release()
        assert self.go.acquire(timeout=_SECONDS)
        return []

    async def reading(self) -> None:
        """Waits until a reading has begun."""
        assert await asyncio.to_thread(self.began.acquire, timeout=_SECONDS)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(observing, "lines_of", made.lines_of)
    yield made
    for _ in range(100):
        made.go.release()


class Desk:
    """The service, and the order in which its questions were answered."""

    def __init__(self) -> None:
        ring = SimpleNamespace(seconds=[], series={})
        recorder: Any = SimpleNamespace(now_ms=lambda: 1e12, ring=ring)
        observer: Any = None
        self._service = observing.ObserveService(observer, recorder)
        self.answered: list[str] = []

    def ask(
        self, tenant: str, *, operator: bool = False, then: Callable[[], object] = lambda: None
    ) -> asyncio.Task[None]:
        """Asks as a tenant does, without a gRPC channel between.

        then: called when the question is answered, before any other task goes on.
        """
        identity = Identity(tenant, operator, Proof.ACCESS_TOKEN)
        with acting_as(Known(Caller("tcp", "10.0.0.1"), identity)):
            return asyncio.ensure_future(self._ask(tenant, then))

    async def _ask(self, tenant: str, then: Callable[[], object]) -> None:
        context: Any = None
        await self._service.GetRecord(observe_pb2.GetRecordRequest(), context)
        self.answered.append(tenant)
        then()


async def answer(gate: Gate, *questions: asyncio.Task[None]) -> None:
    """Lets readings go on until these questions are answered."""
    for _ in questions:
        gate.go.release()
    await asyncio.wait_for(asyncio.gather(*questions), _SECONDS)


async def test_an_operator_does_not_wait_for_tenants(gate: Gate) -> None:
    desk = Desk()
    crowd = [desk.ask("alice") for _ in range(60)]
    await gate.reading()  # of alice's first question; it does not end
    operator = desk.ask("root", operator=True)
    await gate.reading()
    for question in crowd[1:]:
        question.cancel()
    await answer(gate, crowd[0], operator)
    assert sorted(desk.answered) == ["alice", "root"]


async def test_tenants_take_turns(gate: Gate) -> None:
    desk = Desk()
    questions = [desk.ask("alice") for _ in range(6)]
    await gate.reading()
    questions += [desk.ask("bob") for _ in range(2)]
    await asyncio.sleep(0)  # all have come
    await answer(gate, *questions)
    assert desk.answered == ["alice", "bob", "alice", "bob", *["alice"] * 4]


async def test_a_question_that_is_taken_back_gives_its_turn_to_the_next(gate: Gate) -> None:
    desk = Desk()
    # Bob's turn has come when alice's question is answered, and bob's task has not gone on yet.
    first = desk.ask("alice", then=lambda: second.cancel())
    second, third = desk.ask("bob"), desk.ask("carol")
    await gate.reading()
    await answer(gate, first)
    await gate.reading()
    await answer(gate, third)
    assert second.cancelled()
    assert desk.answered == ["alice", "carol"]


async def test_a_question_that_is_taken_back_while_it_is_read_gives_its_turn_to_the_next(
    gate: Gate,
) -> None:
    desk = Desk()
    first, second, third = desk.ask("alice"), desk.ask("bob"), desk.ask("carol")
    await gate.reading()
    await answer(gate, first)
    await gate.reading()
    second.cancel()
    gate.go.release()  # of bob's reading, which goes on in its thread
    await gate.reading()
    await answer(gate, third)
    assert second.cancelled()
    assert desk.answered == ["alice", "carol"]


async def test_a_question_that_is_taken_back_as_its_turn_comes_fails_no_other_one() -> None:
    """Alice's reading ends in the step in which bob's question is taken back."""
    reader, go = observing._Reader(), threading.Event()

    def reads() -> Callable[[], list[Any]]:
        return lambda: [] if go.wait(_SECONDS) else [None]

    def ends() -> Callable[[], list[Any]]:
        bob.cancel()
        raise ArithmeticError("alice's own")

    first = asyncio.ensure_future(reader.read("root", reads))
    alice = asyncio.ensure_future(reader.read("alice", ends))
    bob = asyncio.ensure_future(reader.read("bob", reads))
    carol = asyncio.ensure_future(reader.read("carol", reads))
    await asyncio.sleep(0)  # all have come
    go.set()
    said = asyncio.gather(first, alice, bob, carol, return_exceptions=True)
    one, failed, taken_back, other = await asyncio.wait_for(said, _SECONDS)
    assert (one, other) == ([], [])
    assert isinstance(failed, ArithmeticError)
    assert isinstance(taken_back, asyncio.CancelledError)
    assert await asyncio.wait_for(reader.read("dave", reads), _SECONDS) == []
