"""The control-plane API from the client's side, with errors as sentences."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

# gRPC would print its own lines about a server that is not there.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from rgpu_common.errors import ServerError
from rgpu_common.v1 import (
    device_pb2,
    device_pb2_grpc,
    lease_pb2,
    lease_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

    from rgpu_common.endpoints import Endpoint

TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """An explicit lease as asked for; 0, "" and None leave it to the server."""

    tenant: str = ""
    key: str = ""
    device: int | None = None
    memory_bytes: int = 0
    share_request_ppm: int = 0
    share_limit_ppm: int = 0
    ttl_seconds: float = 30.0


class ControlClient:
    """One connection to a server's API.  Every method raises ServerError with a sentence."""

    def __init__(self, server: Endpoint, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._server = server
        self._timeout = timeout_seconds
        self._channel = grpc.insecure_channel(
            server.grpc_target, options=[("grpc.enable_http_proxy", 0)]
        )
        self._devices = device_pb2_grpc.DeviceServiceStub(self._channel)
        self._leases = lease_pb2_grpc.LeaseServiceStub(self._channel)
        self._sessions = session_pb2_grpc.SessionServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def devices(self) -> device_pb2.ListDevicesResponse:
        """Returns what the server offers."""
        answer: device_pb2.ListDevicesResponse = self._call(
            self._devices.ListDevices, device_pb2.ListDevicesRequest()
        )
        return answer

    def leases(self, tenant: str = "") -> list[lease_pb2.Lease]:
        """Returns all leases, or those of a tenant."""
        request = lease_pb2.ListLeasesRequest(tenant=tenant)
        return list(self._call(self._leases.ListLeases, request).leases)

    def sessions(self, tenant: str = "") -> list[session_pb2.Session]:
        """Returns all sessions, or those of a tenant."""
        request = session_pb2.ListSessionsRequest(tenant=tenant)
        return list(self._call(self._sessions.ListSessions, request).sessions)

    def usage(self, lease_id: str = "") -> list[session_pb2.LeaseUsage]:
        """Returns what leases hold and did."""
        request = session_pb2.GetUsageRequest(lease_id=lease_id)
        return list(self._call(self._sessions.GetUsage, request).leases)

    def grant(self, request: LeaseRequest) -> lease_pb2.Lease:
        """Grants an explicit lease."""
        message = lease_pb2.GrantLeaseRequest(
            tenant=request.tenant,
            key=request.key,
            device=request.device,
            quota=lease_pb2.Quota(
                memory_bytes=request.memory_bytes,
                share_request_ppm=request.share_request_ppm,
                share_limit_ppm=request.share_limit_ppm,
            ),
            ttl_seconds=request.ttl_seconds,
        )
        answer: lease_pb2.GrantLeaseResponse = self._call(self._leases.GrantLease, message)
        return answer.lease

    def keep_alive(self, lease_id: str) -> float:
        """Keeps a lease alive and returns the seconds that it has now."""
        request = lease_pb2.KeepAliveLeaseRequest(lease_id=lease_id)
        return float(self._call(self._leases.KeepAliveLease, request).remaining_seconds)

    def resize(self, lease_id: str, **sizes: int) -> lease_pb2.Lease:
        """Changes memory_bytes, share_request_ppm or share_limit_ppm of a lease."""
        request = lease_pb2.ResizeLeaseRequest(lease_id=lease_id, **sizes)
        answer: lease_pb2.ResizeLeaseResponse = self._call(self._leases.ResizeLease, request)
        return answer.lease

    def revoke(self, lease_id: str) -> int:
        """Ends a lease and returns how many sessions ended with it."""
        request = lease_pb2.RevokeLeaseRequest(lease_id=lease_id)
        return int(self._call(self._leases.RevokeLease, request).ended_sessions)

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as error:
            raise ServerError(self._sentence(error)) from None

    def _sentence(self, error: Any) -> str:
        code, details = error.code(), str(error.details() or "")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"the server at {self._server} did not answer within {self._timeout:g} s"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return f"the server at {self._server} is of another release: {details}"
        if code is not grpc.StatusCode.UNAVAILABLE or details.startswith("the server"):
            return details or f"the server at {self._server} answered {code.name}"
        return (
            f"no rgpu server answers at {self._server}: start one with `rgpu serve`, or say where "
            "it "
            "is with --server or RGPU_SERVER"
        )
