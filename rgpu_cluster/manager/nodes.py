"""The service for the nodes' agents: who may join, and the life of a stream."""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from rgpu_cluster.core.errors import PlacementError
from rgpu_cluster.manager.links import NodeLink, check_identity, joined
from rgpu_cluster.manager.reading import node_name
from rgpu_common import release
from rgpu_common.clusters import ADMITTED
from rgpu_common.units import counted
from rgpu_common.v1 import agent_pb2, agent_pb2_grpc

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context

    from rgpu_cluster.manager.door import Door
    from rgpu_cluster.manager.shell import Shell

HEARTBEAT_SECONDS = 3.0
_FIRST_SECONDS = 10.0
# How long an agent whose stream ends has to take the last message.
_LAST_SECONDS = 5.0
MOST_NODES = 4096


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """links: the nodes that are connected."""

    def __init__(self, shell: Shell, door: Door) -> None:
        self._shell = shell
        self._door = door
        self.links: dict[str, NodeLink] = {}
        # Node -> the latest generation that the core knows of it; the one that left last is last.
        self._generations: OrderedDict[str, int] = OrderedDict()
        # Node -> the server that it was, while the pool has it.
        self._servers: dict[str, bytes] = {}

    async def Join(  # type: ignore[override]  # reads and writes through the context
        self, requests: Any, context: Context
    ) -> None:
        """One agent's stream."""
        await self._door.admit_agent(context)
        await context.send_initial_metadata(((ADMITTED, "1"),))
        report = await self._first(context)
        try:
            name = node_name(report.name)
            check_identity(report)
        except PlacementError as error:
            await _abort(grpc.StatusCode.INVALID_ARGUMENT, str(error), context)
        await self._door.admit_node(name, context)
        await self._check_name(name, bytes(report.server), context)
        link = NodeLink(self._shell, report, self._generations.get(name, 0))
        await self._serve(link, report, context)

    async def _first(self, context: Context) -> agent_pb2.NodeReport:
        try:
            message = await asyncio.wait_for(context.read(), _FIRST_SECONDS)
        except asyncio.TimeoutError:
            sentence = f"the first report did not come within {_FIRST_SECONDS:g} s"
            await _abort(grpc.StatusCode.DEADLINE_EXCEEDED, sentence, context)
        if message is grpc.aio.EOF or message.WhichOneof("said") != "report":
            sentence = "the first message of a node is its report"
            await _abort(grpc.StatusCode.INVALID_ARGUMENT, sentence, context)
        report: agent_pb2.NodeReport = message.report
        return report

    async def _check_name(self, name: str, server: bytes, context: Context) -> None:
        """Refuses a second server of one name while the first is there."""
        other = self.links.get(name)
        if other is not None and other.server != server:
            sentence = (
                f"another server is node {name} here: give this one another name with --node-name"
            )
            await _abort(grpc.StatusCode.ALREADY_EXISTS, sentence, context)
        pool = self._shell.core.pool
        self._servers = {n: s for n, s in self._servers.items() if pool.node(n) is not None}
        if self._servers.get(name, server) != server:
            sentence = (
                f"node {name} has been another server until a moment ago, and its programs may run "
                "on: give this one another name with --node-name, or wait until the manager has "
                "given that one up (`nodes.silence_seconds` of its configuration)"
            )
            await _abort(grpc.StatusCode.ALREADY_EXISTS, sentence, context)
        known = len({*self.links, *(node.name for node in pool.nodes())})
        if other is None and pool.node(name) is None and known >= MOST_NODES:
            sentence = f"the cluster has {MOST_NODES} nodes, which is all it can have"
            await _abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence, context)

    async def _serve(self, link: NodeLink, report: agent_pb2.NodeReport, context: Context) -> None:
        before = self.links.get(link.name)
        if before is not None:
            before.end()  # the same server has opened a new stream
            self._left(before)
        # First, because the report may let requests in line have cards.
        self.links[link.name] = self._shell.links[link.name] = link
        link.send(joined(release(), HEARTBEAT_SECONDS))
        try:
            link.reported(report)
        except PlacementError as error:
            self._left(link)
            await _abort(grpc.StatusCode.INVALID_ARGUMENT, str(error), context)
        self._servers[link.name] = link.server
        self._shell.note(
            "joined", f"{counted(len(report.cards), 'card')} at {report.address}", link.name
        )
        link.catch_up()
        reader = asyncio.ensure_future(_read(link, context))
        writer = asyncio.ensure_future(_write(link, context))
        try:
            await asyncio.wait([reader, writer], return_when=asyncio.FIRST_COMPLETED)
            # A status cannot follow a message that is on its way, so a write is not cut short.
            link.end()
            await asyncio.wait([writer], timeout=_LAST_SECONDS)
        finally:
            for task in (reader, writer):
                task.cancel()
            self._left(link)
        why = await _why(reader, writer)
        if why:
            await _abort(grpc.StatusCode.INVALID_ARGUMENT, why, context)

    def _left(self, link: NodeLink) -> None:
        before = self._generations.pop(link.name, 0)
        self._generations[link.name] = max(before, link.generation)
        if len(self._generations) > 2 * MOST_NODES:
            self._generations.popitem(last=False)
        if self.links.get(link.name) is not link:
            return
        del self.links[link.name], self._shell.links[link.name]
        link.cut()
        self._shell.note("cut", "its agent is not connected", link.name)


async def _read(link: NodeLink, context: Context) -> None:
    while True:
        message = await context.read()
        if message is grpc.aio.EOF:
            return
        link.heard(message)


async def _write(link: NodeLink, context: Context) -> None:
    while True:
        message = await link.next()
        if message is None:
            return
        await context.write(message)


async def _why(reader: asyncio.Future[None], writer: asyncio.Future[None]) -> str:
    """Returns the sentence for an agent that broke a rule, else ""."""
    for task in (reader, writer):
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.BaseError, grpc.RpcError):
            try:
                await task
            except PlacementError as error:
                return str(error)
    return ""


async def _abort(code: grpc.StatusCode, sentence: str, context: Context) -> NoReturn:
    await context.abort(code, sentence)
    raise AssertionError("abort does not return")
