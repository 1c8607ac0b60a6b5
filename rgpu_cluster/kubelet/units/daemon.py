"""Orders leases for containers at the server of this node."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING, Any

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_common.aio_channels import open_aio_channel
from rgpu_common.clusters import MAX_MESSAGE_BYTES
from rgpu_common.credentials import call_metadata
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, lease_pb2, orders_pb2, orders_pb2_grpc

import grpc.aio  # isort: skip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rgpu_cluster.kubelet.units.vocabulary import Asked
    from rgpu_common.endpoints import Endpoint

log = logging.getLogger("rgpu.device-plugin")

_CALL_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
# Without a program, and without this plugin, a container's lease ends after this time.
TTL_SECONDS = 60.0
_OPTIONS = (("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),)


class Daemon:
    """The server of this node.

    report: the last one; None: there is no server. on_report: called when it changes.
    """

    def __init__(self, server: Endpoint, on_report: Callable[[], None]) -> None:
        self.report: agent_pb2.NodeReport | None = None
        self._server = server
        self._on_report = on_report
        self._environment = dict(os.environ)
        self._stub: Any = None

    async def run(self) -> None:
        """Listens to the server until it is cancelled."""
        async with open_aio_channel(self._server, self._environment, _OPTIONS) as channel:
            self._stub = orders_pb2_grpc.NodeOrderServiceStub(channel)
            while True:
                try:
                    await self._listen()
                except grpc.aio.AioRpcError as error:
                    log.warning("the server at %s: %s", self._server, _sentence(error))
                self.report = None
                self._on_report()
                await asyncio.sleep(_PAUSE_SECONDS)

    async def grant(
        self, request: str, attempt: int, tenant: str, asked: Asked, ordinals: Iterable[int]
    ) -> None:
        """Grants the leases of a container; PrepareError if there is no room."""
        order = agent_pb2.GrantOrder(
            request_id=request, attempt=attempt, tenant=tenant, ordinals=ordinals,
            quota=_quota(asked), whole=asked.whole, cards=asked.cards, ttl_seconds=TTL_SECONDS,
            kept=True,
        )  # fmt: skip
        answer = await self._call("Grant", order)
        if not answer.granted:
            raise PrepareError(f"the server of this node grants no lease: {answer.sentence}")

    async def revoke(self, request: str, attempt: int) -> None:
        """Ends the leases of a container; PrepareError."""
        sentence = "its container has ended"
        order = agent_pb2.RevokeOrder(request_id=request, attempt=attempt, sentence=sentence)
        await self._call("Revoke", order)

    async def keep(self, requests: Iterable[str]) -> None:
        """Keeps leases alive; PrepareError."""
        rows = [orders_pb2.KeptRequest(request_id=r, ttl_seconds=TTL_SECONDS) for r in requests]
        await self._call("Keep", orders_pb2.KeepRequest(requests=rows))

    async def _listen(self) -> None:
        stream = self._stub.WatchReport(
            orders_pb2.WatchReportRequest(), metadata=call_metadata(self._environment)
        )
        try:
            async for report in stream:
                self.report = report
                self._on_report()
        finally:
            stream.cancel()

    async def _call(self, name: str, message: Any) -> Any:
        if self._stub is None:
            raise PrepareError(f"the server of this node: {_AWAY}")
        try:
            return await getattr(self._stub, name)(
                message, timeout=_CALL_SECONDS, metadata=call_metadata(self._environment)
            )
        except grpc.aio.AioRpcError as error:
            raise PrepareError(f"the server of this node: {_sentence(error)}") from None


_AWAY = "it does not answer; start `rgpu serve` on this node, or correct --server"


def _sentence(error: grpc.aio.AioRpcError) -> str:
    silent = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
    return _AWAY if error.code() in silent else str(error.details() or error.code().name)


def _quota(asked: Asked) -> lease_pb2.Quota:
    """Returns the sizes."""
    if asked.whole:
        return lease_pb2.Quota(memory_ppm=PPM, share_request_ppm=PPM, share_limit_ppm=PPM)
    if not asked.share_ppm:
        policy = lease_pb2.SHARE_POLICY_BEST_EFFORT
        return lease_pb2.Quota(memory_bytes=asked.memory_bytes, policy=policy)
    return lease_pb2.Quota(
        memory_bytes=asked.memory_bytes,
        share_request_ppm=asked.share_ppm,
        share_limit_ppm=asked.limit_ppm,
    )
