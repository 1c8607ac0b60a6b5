"""Keeps the server in its cluster: one stream to the manager, and a new one when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
import grpc.aio

from rgpu_common.aio_channels import open_aio_channel
from rgpu_common.channels import tls_refusal
from rgpu_common.clusters import ADMITTED, MAX_MESSAGE_BYTES
from rgpu_common.credentials import call_metadata
from rgpu_common.endpoints import speaks_tls
from rgpu_common.errors import UsageError
from rgpu_common.tasks import end
from rgpu_common.v1 import agent_pb2, agent_pb2_grpc
from rgpu_server.agent.measuring import Measuring
from rgpu_server.agent.orders import ground_of

if TYPE_CHECKING:
    from rgpu_common.endpoints import Endpoint
    from rgpu_server.agent.measured import MeasuredPaths
    from rgpu_server.agent.orders import Orders
    from rgpu_server.agent.reports import Reports

log = logging.getLogger("rgpu.agent")

HEARTBEAT_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
# An error of this server that ends a connection after so long is told again.
_NEWS_SECONDS = 60.0
_ENDED = "it ended the connection"
_FAILED = "this server had an error; its log says more"
# What a writer raises that comes to a call when that is over.
_OVER = (asyncio.InvalidStateError, grpc.aio.AioRpcError)
# Changes that come together are reported together.
_GATHER_SECONDS = 0.01
# A manager that is gone without a word is noticed after the sum of the first two.
_OPTIONS = (
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)


class _End(NamedTuple):
    """Why a connection ended, and whether the manager had answered. error: this server's own."""

    why: str
    joined: bool
    error: Exception | None = None


class Joining:
    """Joins the manager at `manager`, for as long as the server runs.

    token_file: the file with the access token for the manager, or "". measured: remembers the
    paths that the manager has had measured.
    """

    def __init__(
        self,
        manager: Endpoint,
        token_file: str,
        reports: Reports,
        orders: Orders,
        measured: MeasuredPaths,
    ) -> None:
        self._manager = manager
        self._token_file = token_file
        self._reports = reports
        self._orders = orders
        self._measured = measured
        self._task: asyncio.Task[None] | None = None
        self._stream: _Stream | None = None
        self._leaves = False

    def start(self) -> None:
        """Begins to join; the server serves on whether or not it succeeds."""
        self._task = asyncio.ensure_future(self._run())

    def changed(self) -> None:
        """Notes that the server's leases may have changed."""
        if self._stream is not None:
            self._stream.changed()

    async def close(self) -> None:
        """Leaves the cluster. The manager counts the node as lost after a while."""
        self._leaves = True
        if self._task is not None:
            await end([self._task])

    async def _run(self) -> None:
        pause, said = _FIRST_PAUSE, ""
        while True:
            began = time.monotonic()
            end_of = await self._once()
            if _is_news(end_of, time.monotonic() - began):
                pause, said = _FIRST_PAUSE, ""
            if end_of.why != said:
                self._say(end_of)
                said = end_of.why
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _say(self, end_of: _End) -> None:
        if end_of.error is not None:
            log.error("the connection to the manager failed", exc_info=end_of.error)
        log.warning("the manager at %s: %s", self._manager, end_of.why)

    async def _once(self) -> _End:
        """Joins, and returns how that ended."""
        environment = dict(os.environ)
        if self._token_file:
            environment.pop("RGPU_TOKEN", None)
            environment["RGPU_TOKEN_FILE"] = self._token_file
        try:
            metadata = call_metadata(environment)
            opened = open_aio_channel(self._manager, environment, _OPTIONS)
        except UsageError as error:
            return _End(str(error), False)  # the file may come later
        async with opened as channel:
            stub = agent_pb2_grpc.AgentServiceStub(channel)
            call = stub.Join(metadata=metadata)
            self._stream = stream = _Stream(call, self._reports, self._orders, self._measured)
            try:
                await stream.run()
            except grpc.aio.AioRpcError as error:
                return _End(_sentence(self._manager, error), stream.joined)
            except asyncio.CancelledError:
                # grpc.aio raises this as well where the manager has cancelled the call.
                if self._leaves:
                    raise
            except Exception as error:
                # One report or order that fails must not keep the node out of its cluster.
                return _End(_FAILED, stream.joined, error)
            finally:
                self._stream = None
                await stream.close()
            return _End(_ENDED, stream.joined)


def _is_news(end_of: _End, seconds: float) -> bool:
    """Returns whether all was well before a connection of so many seconds ended. An order that
    fails here comes again with each connection, and would fill the log.
    """
    return end_of.joined and (end_of.error is None or seconds >= _NEWS_SECONDS)


def _sentence(manager: Endpoint, error: grpc.aio.AioRpcError) -> str:
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        plain = "" if speaks_tls(manager) else "write tls: before its address if it speaks TLS, "
        return tls_refusal(manager, str(error.details() or "")) or (
            f"it does not answer; start one there with `rgpu manager`, {plain}or correct --join"
        )
    if error.code() is grpc.StatusCode.INTERNAL:
        return _ENDED  # a write met the end of the call
    return str(error.details() or error.code().name)


class _Stream:
    """One stream. Answers go out first; a report only if it says something new."""

    def __init__(
        self, call: Any, reports: Reports, orders: Orders, measured: MeasuredPaths
    ) -> None:
        self.joined = False
        self._call = call
        self._reports = reports
        self._orders = orders
        self._measuring = Measuring(self._answer_path, measured)
        self._generation = 0
        self._said: agent_pb2.NodeReport | None = None
        self._answers: deque[agent_pb2.AgentMessage] = deque()
        self._wake = asyncio.Event()
        # A report is due; it is sent even if nothing has changed.
        self._due, self._forced = True, True
        self._gather: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Talks to the manager until the stream ends; grpc.aio.AioRpcError says why."""
        if not await self._admitted():
            await self._call.read()
            return
        writer = asyncio.ensure_future(self._write())
        writer.add_done_callback(self._wrote)
        try:
            while True:
                message = await self._call.read()
                if message is grpc.aio.EOF:
                    return
                self._heard(message)
        finally:
            await end([writer])
            if not writer.cancelled():
                with contextlib.suppress(*_OVER):
                    writer.result()

    def _wrote(self, writer: asyncio.Task[None]) -> None:
        """Ends a call for which no report can be made: without reports the manager would take this
        node for lost, and nobody would join again.
        """
        error = None if writer.cancelled() else writer.exception()
        if error is not None and not isinstance(error, _OVER):
            self._call.cancel()

    async def _admitted(self) -> bool:
        """Waits until the manager has admitted this node, or has ended the call.

        Nothing is written before, because a write that meets the end of the call would hide the
        manager's sentence.
        """
        metadata = await self._call.initial_metadata()
        return metadata is not None and ADMITTED in [key for key, _ in metadata]

    async def close(self) -> None:
        if self._gather is not None:
            self._gather.cancel()
        self._call.cancel()
        await self._measuring.close()

    def changed(self) -> None:
        """Reports soon, together with what else changes until then."""
        if self._gather is None:
            loop = asyncio.get_running_loop()
            self._gather = loop.call_later(_GATHER_SECONDS, self._report)

    def _report(self) -> None:
        self._gather = None
        self._due = True
        self._wake.set()

    def _heard(self, message: agent_pb2.ManagerMessage) -> None:
        kind = message.WhichOneof("said")
        if kind == "joined":
            self.joined = True
            log.info("this server is a node of the cluster (manager %s)", message.joined.release)
        elif kind == "grant":
            self._grant(message.grant)
        elif kind == "revoke":
            order = message.revoke
            self._orders.revoke(order.request_id, order.attempt, order.sentence)
            answer = agent_pb2.RevokeAnswer(request_id=order.request_id, attempt=order.attempt)
            self._answer(agent_pb2.AgentMessage(revoked=answer))
        elif kind == "abandon":
            self._orders.abandon(message.abandon.request_id, message.abandon.attempt)
        elif kind == "warn":
            self._orders.warn(message.warn)
        elif kind == "drain":
            self._orders.drain(message.drain)
        elif kind == "resize":
            resized = self._orders.resize(message.resize)
            # Every report after this one tells of the size.
            self._generation += 1
            resized.generation = self._generation
            self._answer(agent_pb2.AgentMessage(resized=resized))
        elif kind == "report":
            self._forced = True
            self.changed()
        elif kind == "measure":
            self._measuring.order(message.measure)

    def _grant(self, order: agent_pb2.GrantOrder) -> None:
        refusal = self._orders.grant(order)
        # Every report after this one tells of the lease, or of its end.
        self._generation += 1
        answer = agent_pb2.GrantAnswer(
            request_id=order.request_id,
            attempt=order.attempt,
            granted=refusal is None,
            generation=self._generation,
        )
        if refusal is not None:
            answer.sentence, answer.ground = refusal.sentence, ground_of(refusal)
        self._answer(agent_pb2.AgentMessage(granted=answer))

    def _answer_path(self, path: agent_pb2.PathReport) -> None:
        self._answer(agent_pb2.AgentMessage(path=path))

    def _answer(self, message: agent_pb2.AgentMessage) -> None:
        self._answers.append(message)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            self._wake.clear()
            if not await self._write_all():
                heartbeat = agent_pb2.Heartbeat(
                    generation=self._generation, uses=self._reports.uses()
                )
                await self._call.write(agent_pb2.AgentMessage(heartbeat=heartbeat))
            try:
                await asyncio.wait_for(self._wake.wait(), HEARTBEAT_SECONDS)
            except asyncio.TimeoutError:
                self._due = True  # programs may use less memory than before

    async def _write_all(self) -> bool:
        """Writes what there is to say; False if there was nothing."""
        said = False
        while self._answers:
            await self._call.write(self._answers.popleft())
            said = True
        if not self._due:
            return said
        self._due = False
        now = self._reports.look()
        if now == self._said and not self._forced:
            return said
        self._forced = False
        self._said = agent_pb2.NodeReport()
        self._said.CopyFrom(now)
        self._generation += 1
        now.generation = self._generation
        self._reports.stamp(now)
        await self._call.write(agent_pb2.AgentMessage(report=now))
        return True
