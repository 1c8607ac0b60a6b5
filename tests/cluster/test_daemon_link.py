"""The agent's link to its server: a server that goes, comes back, stands still, or refuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio
import pytest

from rgpu_cluster.kubernetes.agent import daemon
from rgpu_cluster.kubernetes.agent.daemon import DaemonLink
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.tasks import end
from rgpu_common.v1 import agent_pb2, orders_pb2, orders_pb2_grpc

SECONDS = 60


class Fake(orders_pb2_grpc.NodeOrderServiceServicer):
    """A server that reports once. stands: it answers nothing else. refuses: it refuses the watch.
    late: so many watches get no report.
    """

    def __init__(self, stands: bool = False, refuses: str = "", late: int = 0) -> None:
        self.stands = stands
        self.refuses = refuses
        self.late = late
        self.kept: list[orders_pb2.KeepRequest] = []

    async def WatchReport(
        self, request: orders_pb2.WatchReportRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[agent_pb2.NodeReport]:
        if self.refuses:
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, self.refuses)
        if self.late:
            self.late -= 1
            await asyncio.Event().wait()
        yield agent_pb2.NodeReport(name="gpu7", release="0.1.0")
        await asyncio.Event().wait()

    async def Keep(
        self, request: orders_pb2.KeepRequest, context: grpc.aio.ServicerContext
    ) -> orders_pb2.KeepResponse:
        if self.stands:
            await asyncio.Event().wait()
        self.kept.append(request)
        return orders_pb2.KeepResponse(unknown=[one.request_id for one in request.requests])


class Ears:
    """What a link has told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self._more = asyncio.Event()

    def link(self, socket: str) -> DaemonLink:
        return DaemonLink(parse_endpoint(socket), self._reported, lambda: self._add("silence"))

    def _reported(self, report: agent_pb2.NodeReport, first: bool) -> None:
        self._add(f"{report.name} {'first' if first else 'again'}")

    def _add(self, text: str) -> None:
        self.heard.append(text)
        self._more.set()

    async def until(self, holds: Callable[[list[str]], bool]) -> None:
        async def wait() -> None:
            while not holds(self.heard):
                self._more.clear()
                await self._more.wait()

        await asyncio.wait_for(wait(), SECONDS)


async def serve(fake: Fake, socket: str) -> grpc.aio.Server:
    server = grpc.aio.server()
    orders_pb2_grpc.add_NodeOrderServiceServicer_to_server(fake, server)
    server.add_insecure_port(socket)
    await server.start()
    return server


@pytest.mark.asyncio
async def test_a_server_that_comes_back_is_heard_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket, ears = f"unix:{tmp_path}/s", Ears()
    link = ears.link(socket)
    with caplog.at_level(logging.WARNING, "rgpu.kubernetes"):
        task = asyncio.ensure_future(link.run())
        await ears.until(lambda heard: heard.count("silence") >= 2)
        server = await serve(Fake(), socket)
        await ears.until(lambda heard: "gpu7 first" in heard)
        await server.stop(None)
        await ears.until(lambda heard: heard[-1] == "silence")
        server = await serve(Fake(), socket)
        await ears.until(lambda heard: heard[-1] == "gpu7 first")
        await end([task])
        await server.stop(None)
    # While it is away that is said once.
    said = [record.getMessage() for record in caplog.records]
    assert len([one for one in said if "start `rgpu serve` there" in one]) <= 2


@pytest.mark.asyncio
@pytest.mark.parametrize("late", [0, 1])
async def test_a_server_that_stands_still_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, late: int
) -> None:
    monkeypatch.setattr(daemon, "_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(daemon, "CALL_SECONDS", 0.05)
    socket, ears, fake = f"unix:{tmp_path}/s", Ears(), Fake(stands=True, late=late)
    server = await serve(fake, socket)
    task = asyncio.ensure_future(ears.link(socket).run())
    # If the first report takes longer than a check, there was a silence before it, too.
    await ears.until(lambda heard: heard[-2:] == ["gpu7 first", "silence"])
    assert "has not answered" in caplog.text
    fake.stands = False
    await ears.until(lambda heard: heard[-1] == "gpu7 first")
    await end([task])
    await server.stop(None)


@pytest.mark.asyncio
async def test_a_server_that_refuses_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    socket, ears = f"unix:{tmp_path}/s", Ears()
    server = await serve(Fake(refuses="only an operator may order leases"), socket)
    task = asyncio.ensure_future(ears.link(socket).run())
    await ears.until(lambda heard: heard.count("silence") >= 2)
    await end([task])
    await server.stop(None)
    said = [r.getMessage() for r in caplog.records if "only an operator" in r.getMessage()]
    assert len(said) == 1


@pytest.mark.asyncio
async def test_a_link_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    socket, ears = f"unix:{tmp_path}/s", Ears()
    server = await serve(Fake(), socket)
    link = ears.link(socket)
    task = asyncio.ensure_future(link.run())
    await ears.until(lambda heard: "gpu7 first" in heard)
    request = orders_pb2.KeepRequest(requests=[orders_pb2.KeptRequest(request_id="x" * 16)])
    assert await link.keep(request) == ["x" * 16]
    await end([task])
    assert task.cancelled()
    await server.stop(None)
