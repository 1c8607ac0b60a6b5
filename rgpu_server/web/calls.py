"""Calls of the control-plane API's services from within their process.

Who asks has been identified at another door. The services check what that caller may do, as they do
for every call of gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from msgspec import Struct

if TYPE_CHECKING:
    from rgpu_server.core.identity import Identity

_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 409,
    grpc.StatusCode.UNAVAILABLE: 503,
}


class CallRefusedError(Exception):
    """A service has refused a call. status: of HTTP."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class OwnCall(Struct, frozen=True):
    """The context of such a call, in place of gRPC's: as much of it as the services use."""

    identity: Identity

    async def abort(
        self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()
    ) -> NoReturn:
        """Ends the call, as `grpc.aio.ServicerContext.abort`."""
        del trailing_metadata
        raise CallRefusedError(_STATUS.get(code, 500), details)
