"""Asks who calls before the message of a call is read.

gRPC reads the only message of a unary call before it runs the method, for as long as the caller
likes to take. So a stranger could have the manager keep megabytes for each of very many calls. As a
stream of one message, which is the same on the wire, the call is refused first; and a known caller
has to bring its message in time.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from rgpu_server.core.failures import network_of
from rgpu_server.identity.pacing import Kind, Pacing, kind_of
from rgpu_server.service.callers import host_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from grpc.aio import ServicerContext as Context

    from rgpu_cluster.manager.door import Door
    from rgpu_server.core.identity import Identity

MESSAGE_SECONDS = 10.0


class Early(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Admits the callers of all methods that take one message, and has tenants take turns."""

    def __init__(self, door: Door, seconds: float = MESSAGE_SECONDS) -> None:
        self._door = door
        self._seconds = seconds
        # Cards are chosen in the same process.
        self._pacing = Pacing()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Returns the method as one that takes a stream."""
        method = await continuation(handler_call_details)
        if method is None or method.request_streaming:
            return method
        kind = kind_of(handler_call_details.method)
        codec = method.request_deserializer, method.response_serializer
        if method.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._to_stream(method, kind), *codec)
        return grpc.stream_unary_rpc_method_handler(self._to_one(method, kind), *codec)

    def _to_one(self, method: Any, kind: Kind) -> Any:
        async def answer(_: Any, context: Context) -> Any:
            identity, message = await self._message(context)
            work = method.unary_unary(message, context)
            return await self._pacing.answer(kind, identity, _origin(context), work)

        return answer

    def _to_stream(self, method: Any, kind: Kind) -> Any:
        async def answer(_: Any, context: Context) -> AsyncIterator[Any]:
            identity, message = await self._message(context)
            work = method.unary_stream(message, context)
            paced = self._pacing.stream(kind, identity, _origin(context), work)
            async with aclosing(paced):
                async for said in paced:
                    yield said

        return answer

    async def _message(self, context: Context) -> tuple[Identity, Any]:
        """Returns who calls, and the message."""
        identity = await self._door.admit(context)
        try:
            message = await asyncio.wait_for(context.read(), self._seconds)
        except asyncio.TimeoutError:
            sentence = f"the message of the call did not come within {self._seconds:g} s"
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, sentence)
        if message is grpc.aio.EOF:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the call has no message")
        return identity, message


def _origin(context: Context) -> str:
    """Returns the network that takes turns as one, where its callers have no tenant."""
    return network_of(host_of(context.peer()))
