"""The link to the server of this node: its reports, and orders for its leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from rgpu_common.aio_channels import open_aio_channel
from rgpu_common.clusters import MAX_MESSAGE_BYTES
from rgpu_common.credentials import call_metadata
from rgpu_common.v1 import agent_pb2, orders_pb2, orders_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable

    from rgpu_common.endpoints import Endpoint

log = logging.getLogger("rgpu.kubernetes")

CALL_SECONDS = 10.0
_CHECK_SECONDS = 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 3.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    # A server that is back is found soon.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
)
_ENDED = "it ended the connection"
_SILENT = f"it has not answered for {_CHECK_SECONDS + CALL_SECONDS:g} s"

CALL_ERRORS = (grpc.aio.AioRpcError,)


class DaemonLink:
    """on_report: called with each report; True: it is the first one of a connection. on_silence:
    called when there is no server. Calls raise one of CALL_ERRORS.
    """

    def __init__(
        self,
        server: Endpoint,
        on_report: Callable[[agent_pb2.NodeReport, bool], None],
        on_silence: Callable[[], None],
    ) -> None:
        self._server = server
        self._on_report = on_report
        self._on_silence = on_silence
        self._environment = dict(os.environ)
        self._metadata = call_metadata(self._environment)
        self._stub: Any = None
        self._said = ""

    async def run(self) -> None:
        """Listens to the server until it is cancelled."""
        pause = _FIRST_PAUSE
        async with open_aio_channel(self._server, self._environment, _OPTIONS) as channel:
            self._stub = orders_pb2_grpc.NodeOrderServiceStub(channel)
            while True:
                why, heard = await self._listen()
                self._on_silence()
                if heard:
                    pause, self._said = _FIRST_PAUSE, ""
                if why != self._said:
                    log.warning("the server at %s: %s", self._server, why)
                    self._said = why
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def grant(self, order: agent_pb2.GrantOrder) -> agent_pb2.GrantAnswer:
        answer: agent_pb2.GrantAnswer = await self._call(self._stub.Grant, order)
        return answer

    async def revoke(self, order: agent_pb2.RevokeOrder) -> None:
        await self._call(self._stub.Revoke, order)

    async def keep(self, request: orders_pb2.KeepRequest) -> list[str]:
        """Keeps leases alive; returns the requests that have none."""
        answer: orders_pb2.KeepResponse = await self._call(self._stub.Keep, request)
        return list(answer.unknown)

    async def _call(self, method: Any, message: Any) -> Any:
        return await method(message, metadata=self._metadata, timeout=CALL_SECONDS)

    async def _listen(self) -> tuple[str, bool]:
        """Reads reports until they end; returns why, and whether there was one."""
        stream = self._stub.WatchReport(orders_pb2.WatchReportRequest(), metadata=self._metadata)
        check = asyncio.ensure_future(self._check(stream))
        heard = False
        try:
            while True:
                report = await stream.read()
                if report is grpc.aio.EOF:
                    return _ENDED, heard
                if not heard:
                    log.info("the server at %s is this node's (%s)", self._server, report.release)
                self._on_report(report, not heard)
                heard = True
        except grpc.aio.AioRpcError as error:
            return sentence_of(error), heard
        except asyncio.CancelledError:
            # grpc.aio raises this as well where the call itself was cancelled, by `_check`.
            if not check.done() or check.cancelled():
                raise
            return _SILENT, heard
        finally:
            check.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await check
            stream.cancel()

    async def _check(self, stream: Any) -> None:
        """Ends the stream if the server stands still, for it says nothing when nothing changes."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await self.keep(orders_pb2.KeepRequest())
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                    stream.cancel()
                    return


def sentence_of(error: grpc.aio.AioRpcError) -> str:
    """Returns why a call to the server failed."""
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return "it does not answer; start `rgpu serve` there, or correct --server"
    if error.code() is grpc.StatusCode.UNIMPLEMENTED:
        return "it takes no orders from this agent; update it"
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"it did not answer within {CALL_SECONDS:g} s"
    return str(error.details() or error.code().name)
