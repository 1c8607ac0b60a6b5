"""How a server's agent keeps at its manager, whatever the manager's calls end with."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Any

import grpc
import grpc.aio
import pytest

from rgpu_common.clusters import ADMITTED
from rgpu_common.endpoints import TcpEndpoint
from rgpu_common.v1 import agent_pb2, agent_pb2_grpc
from rgpu_server.agent import joining
from rgpu_server.agent.joining import Joining

Answer = Callable[[Any], Awaitable[None]]
CALLS = 40
FAILED = "this server had an error; its log says more"


class _Reports:
    """The agent's reports. over: what to wait for before each, so that the agent writes to a call
    that has ended.
    """

    def __init__(self, over: Event | None) -> None:
        self._over = over

    def look(self) -> agent_pb2.NodeReport:
        if self._over is not None:
            assert self._over.wait(30)
        return agent_pb2.NodeReport(name="gpu1")

    def stamp(self, report: agent_pb2.NodeReport) -> None:
        pass

    def uses(self) -> list[agent_pb2.CardUse]:
        return []


class _Failing(_Reports):
    """None can be made."""

    def look(self) -> agent_pb2.NodeReport:
        raise OSError("a network device has gone")


class _Manager(agent_pb2_grpc.AgentServiceServicer):
    """Gives each call of an agent the same answer."""

    def __init__(self, answer: Answer, over: Event, enough: Event) -> None:
        self._answer = answer
        self._over = over
        self._enough = enough
        self._calls = 0

    async def Join(self, requests: Any, context: Any) -> None:  # type: ignore[override]
        self._over.clear()
        try:
            await self._answer(context)
        finally:
            asyncio.get_running_loop().call_soon(self._ended)

    def _ended(self) -> None:
        self._over.set()
        self._calls += 1
        if self._calls >= CALLS:
            self._enough.set()


def _manage(port: Connection, answer: Answer, over: Event, enough: Event) -> None:
    """A manager's process. (gRPC for asyncio is not made for two loops in one process.)"""

    async def run() -> None:
        server = grpc.aio.server()
        agent_pb2_grpc.add_AgentServiceServicer_to_server(_Manager(answer, over, enough), server)
        port.send(server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        await server.wait_for_termination()

    asyncio.run(run())


def _join(answer: Answer, *, late: bool, fails: bool = False) -> None:
    """Runs an agent until its calls have ended often enough. late: it writes when they have.
    fails: it has nothing to write.
    """
    context = multiprocessing.get_context("spawn")
    over, enough = context.Event(), context.Event()
    ours, theirs = context.Pipe()
    manager = context.Process(target=_manage, args=(theirs, answer, over, enough))

    async def run(port: int) -> None:
        reports = (_Failing if fails else _Reports)(over if late else None)
        agent = Joining(TcpEndpoint("127.0.0.1", port), "", reports, None, None)  # type: ignore[arg-type]
        agent.start()
        try:
            assert await asyncio.to_thread(enough.wait, 60)
        finally:
            await agent.close()

    manager.start()
    try:
        assert ours.poll(60)
        asyncio.run(run(ours.recv()))
    finally:
        manager.kill()
        manager.join()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(joining, "_LONGEST_PAUSE", 0.001)


def _sentences(log: pytest.LogCaptureFixture) -> set[str]:
    return {
        record.getMessage().partition(": ")[2]
        for record in log.records
        if record.name == "rgpu.agent"
    }


async def _refuse(context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the token is not valid here")


def test_a_refusal_is_never_hidden_by_what_the_agent_writes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "rgpu.agent"):
        _join(_refuse, late=True)
    assert _sentences(caplog) == {"the token is not valid here"}


async def _let_in(context: Any) -> None:
    await context.send_initial_metadata(((ADMITTED, "1"),))


async def _return(context: Any) -> None:
    await _let_in(context)


async def _cancel(context: Any) -> None:
    await _let_in(context)
    await context.abort(grpc.StatusCode.CANCELLED, "the manager stops")


async def _cancel_strangers(context: Any) -> None:
    await context.abort(grpc.StatusCode.CANCELLED, "the manager stops")


async def _fail_after_a_report(context: Any) -> None:
    await _let_in(context)
    await context.read()
    await context.abort(grpc.StatusCode.ALREADY_EXISTS, "another server has this name")


@pytest.mark.parametrize("answer", [_return, _cancel, _cancel_strangers])
def test_an_agent_that_writes_to_an_ended_call_calls_again(answer: Answer) -> None:
    _join(answer, late=True)


def test_an_agent_whose_report_is_refused_calls_again(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rgpu.agent"):
        _join(_fail_after_a_report, late=False)
    assert _sentences(caplog) == {"another server has this name"}


async def _stay(context: Any) -> None:
    await _let_in(context)
    await asyncio.Event().wait()


def test_a_report_that_cannot_be_made_does_not_silence_the_node_for_ever(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "rgpu.agent"):
        _join(_stay, late=False, fails=True)
    assert FAILED in _sentences(caplog)
    assert "a network device has gone" in caplog.text


async def _order(context: Any) -> None:
    await _let_in(context)
    await context.write(agent_pb2.ManagerMessage(joined=agent_pb2.JoinAnswer(release="1")))
    await context.write(agent_pb2.ManagerMessage(grant=agent_pb2.GrantOrder(request_id="r")))
    await asyncio.Event().wait()


def test_an_order_that_fails_is_told_once_and_not_as_a_report(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It comes again with each connection."""
    with caplog.at_level(logging.WARNING, "rgpu.agent"):
        _join(_order, late=False)
    told = [one for one in caplog.records if one.name == "rgpu.agent"]
    assert [one.getMessage().rpartition(": ")[2] for one in told] == [
        "the connection to the manager failed",
        FAILED,
    ]
    assert "'NoneType' object has no attribute 'grant'" in caplog.text
