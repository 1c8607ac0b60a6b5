"""Identifies the caller of each call of the control-plane API, before the call runs."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio
from msgspec import Struct

from rgpu_server.core.model import Code, Refusal
from rgpu_server.identity.pacing import Kind, Pacing, kind_of
from rgpu_server.service.callers import Caller

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from grpc.aio import ServicerContext as Context

    from rgpu_server.core.identity import Identity
    from rgpu_server.identity.authenticator import Authenticator
    from rgpu_server.service.places import Places

_BEARER = "bearer "
_UNKNOWN = Refusal(Code.NOT_IDENTIFIED, "the server does not know where this call comes from")
_FULL = (
    "as many connections to the API are open as the server allows, and nobody has more than one to "
    "leave; try again later"
)
_STATUS = {
    Code.NOT_IDENTIFIED: grpc.StatusCode.UNAUTHENTICATED,
    Code.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
}


class Known(Struct, frozen=True):
    """The caller of the API call that is running."""

    caller: Caller
    identity: Identity

    @property
    def noted(self) -> dict[str, str | int | None]:
        """Returns who it is, as the fields of a line in the audit log."""
        return {
            "by": self.identity.tenant or self.identity.proof.value,
            "proof": self.identity.proof.value,
            "peer": self.caller.peer,
            "uid": self.caller.uid,
        }


_known: ContextVar[Known] = ContextVar("known")


def known() -> Known:
    """Returns the caller of the running call; raises LookupError outside of one."""
    return _known.get()


@contextlib.contextmanager
def acting_as(caller: Known) -> Iterator[None]:
    """The caller of the calls that this process makes of its own services in the block: who asked
    for them by another door, as that door has identified them.
    """
    before = _known.set(caller)
    try:
        yield
    finally:
        _known.reset(before)


class Guard(grpc.aio.ServerInterceptor):  # type: ignore[misc]
    """Interceptor of the API's server. callers: the callers behind the front door's tunnels."""

    def __init__(self, authenticator: Authenticator, callers: Places) -> None:
        self._authenticator = authenticator
        self._callers = callers
        # Sessions open in the same process.
        self._pacing = Pacing()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wraps the called method (grpc.aio.ServerInterceptor)."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        kind = kind_of(handler_call_details.method)
        if handler.response_streaming:
            return handler._replace(**{_shape(handler): self._streaming(handler, kind)})
        return handler._replace(**{_shape(handler): self._single(handler, kind)})

    def _single(self, handler: Any, kind: Kind) -> Callable[[Any, Context], Awaitable[Any]]:
        method = getattr(handler, _shape(handler))

        async def answer(request: Any, context: Context) -> Any:
            caller = await self._admit(context)
            _known.set(caller)
            work = method(request, context)
            origin = caller.caller.origin
            return await self._pacing.answer(kind, caller.identity, origin, work)

        return answer

    def _streaming(self, handler: Any, kind: Kind) -> Callable[[Any, Context], AsyncIterator[Any]]:
        method = getattr(handler, _shape(handler))

        async def answer(request: Any, context: Context) -> AsyncIterator[Any]:
            caller = await self._admit(context)
            _known.set(caller)
            work = method(request, context)
            paced = self._pacing.stream(kind, caller.identity, caller.caller.origin, work)
            async with contextlib.aclosing(paced):
                async for message in paced:
                    yield message

        return answer

    async def _admit(self, context: Context) -> Known:
        address = context.peer()
        caller = self._callers.caller(address)
        if caller is None:
            await self._abort(Caller("unknown", "unknown"), _UNKNOWN, context)
        found = self._authenticator.admit(caller, bearer(context.invocation_metadata()))
        if isinstance(found, Refusal):
            await self._abort(caller, found, context)
        if not self._callers.admitted(address, found.tenant, operator=found.operator):
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _FULL)
        return Known(caller, found)

    async def _abort(self, caller: Caller, refusal: Refusal, context: Context) -> NoReturn:
        sentence = refusal.sentence
        if not self._authenticator.answers(caller, "api", refusal):
            sentence = "too many refused calls from this address; try again later"
        await context.abort(_STATUS[refusal.code], sentence)
        raise AssertionError("abort does not return")


def bearer(metadata: Any) -> str:
    """Returns the access token in a call's metadata, or ""."""
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str) and value.lower().startswith(_BEARER):
            return value[len(_BEARER) :].strip()
    return ""


def _shape(handler: Any) -> str:
    return (
        f"{'stream' if handler.request_streaming else 'unary'}_"
        f"{'stream' if handler.response_streaming else 'unary'}"
    )
