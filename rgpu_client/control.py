"""The client of the control-plane API. Errors are sentences."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Any

from msgspec import Struct

# Otherwise gRPC would print lines of its own about a server that cannot be reached.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

import grpc

from rgpu_client.settings import SILENT_REMEDY, SILENT_SECONDS
from rgpu_common.channels import open_channel
from rgpu_common.closing import Closing
from rgpu_common.credentials import call_metadata
from rgpu_common.endpoints import GrpcEndpoint, TcpEndpoint, parse_endpoint, speaks_tls
from rgpu_common.errors import NotThereError, RgpuError, ServerError, SilentError
from rgpu_common.texts import one_line
from rgpu_common.v1 import (
    device_pb2,
    device_pb2_grpc,
    lease_pb2,
    lease_pb2_grpc,
    log_pb2,
    log_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    observe_pb2,
    observe_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rgpu_common.endpoints import Endpoint
    from rgpu_common.sharing import SharePolicy

TIMEOUT_SECONDS = SILENT_SECONDS
_LOOK_SECONDS = 1.0
_KINDS = {
    grpc.StatusCode.NOT_FOUND: NotThereError,
    grpc.StatusCode.DEADLINE_EXCEEDED: SilentError,
}


class LeaseRequest(Struct, frozen=True):
    """A request for an explicit lease. For a field that is 0, "" or None, the server decides.

    memory_ppm: the memory in millionths of the device's memory; used if memory_bytes is 0.
    behind_line: leave alone the room that claims in line wait for; an operator may take it. name:
    what people call the lease.
    """

    tenant: str = ""
    key: str = ""
    device: int | None = None
    memory_bytes: int = 0
    share_request_ppm: int = 0
    share_limit_ppm: int = 0
    ttl_seconds: float = 30.0
    memory_ppm: int = 0
    policy: SharePolicy | None = None
    priority: int | None = None
    weight: int | None = None
    behind_line: bool = False
    name: str = ""


class ResizeRequest(Struct, frozen=True):
    """New sizes of a lease. A size that is None stays unchanged.

    kill: ends sessions, the largest first, if the lease uses more memory than its new limit.
    """

    memory_bytes: int | None = None
    memory_ppm: int | None = None
    share_request_ppm: int | None = None
    share_limit_ppm: int | None = None
    policy: SharePolicy | None = None
    priority: int | None = None
    weight: int | None = None
    kill: bool = False


class ControlClient(Closing):
    """One connection to a server's API, with the environment's access token (RGPU_TOKEN_FILE).

    Every method raises ServerError with a sentence.

    explicit: the address is a path. Else it names a server, to which programs on its machine go by
    its Unix socket; if the server lets nobody in here without proof, it is asked at that socket.
    """

    def __init__(
        self,
        server: Endpoint,
        timeout_seconds: float = TIMEOUT_SECONDS,
        environment: Mapping[str, str] = os.environ,
        *,
        explicit: bool = True,
    ) -> None:
        self._timeout = timeout_seconds
        self._until = math.inf
        self._environment = environment
        self._names_server = type(server) is TcpEndpoint and not explicit
        self._metadata = call_metadata(environment)
        self._open(server)

    def _open(self, server: Endpoint) -> None:
        self._server = server
        self._channel = open_channel(server, self._environment)
        self._devices = device_pb2_grpc.DeviceServiceStub(self._channel)
        self._leases = lease_pb2_grpc.LeaseServiceStub(self._channel)
        self._log = log_pb2_grpc.LogServiceStub(self._channel)
        self._node = node_pb2_grpc.NodeServiceStub(self._channel)
        self._observe = observe_pb2_grpc.ObserveServiceStub(self._channel)
        self._sessions = session_pb2_grpc.SessionServiceStub(self._channel)

    def give_up_after(self, seconds: float) -> None:
        """Lets all calls from now on end within these seconds together."""
        self._until = time.monotonic() + seconds

    def close(self) -> None:
        """Closes the connection."""
        self._channel.close()

    def devices(self) -> device_pb2.ListDevicesResponse:
        """Returns the server's devices."""
        answer: device_pb2.ListDevicesResponse = self._call(
            lambda: self._devices.ListDevices, device_pb2.ListDevicesRequest()
        )
        return answer

    def leases(self, tenant: str = "") -> list[lease_pb2.Lease]:
        """Returns all leases, or those of a tenant."""
        request = lease_pb2.ListLeasesRequest(tenant=tenant)
        return list(self._call(lambda: self._leases.ListLeases, request).leases)

    def sessions(self, tenant: str = "") -> list[session_pb2.Session]:
        """Returns all sessions, or those of a tenant."""
        return list(self.running(tenant).sessions)

    def running(self, tenant: str = "") -> session_pb2.ListSessionsResponse:
        """Returns sessions and the claims in line, of all or of a tenant."""
        answer: session_pb2.ListSessionsResponse = self._call(
            lambda: self._sessions.ListSessions, session_pb2.ListSessionsRequest(tenant=tenant)
        )
        return answer

    def usage(self, lease_id: str = "") -> list[session_pb2.LeaseUsage]:
        """Returns the usage of one lease, or of all."""
        request = session_pb2.GetUsageRequest(lease_id=lease_id)
        return list(self._call(lambda: self._sessions.GetUsage, request).leases)

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
                policy=_policy(request.policy),
                priority=request.priority,
                weight=request.weight,
                memory_ppm=request.memory_ppm,
            ),
            ttl_seconds=request.ttl_seconds,
            behind_line=request.behind_line,
            name=request.name,
        )
        answer: lease_pb2.GrantLeaseResponse = self._call(lambda: self._leases.GrantLease, message)
        return answer.lease

    def keep_alive(self, lease_id: str) -> float:
        """Keeps a lease alive and returns the seconds until it expires."""
        request = lease_pb2.KeepAliveLeaseRequest(lease_id=lease_id)
        return float(self._call(lambda: self._leases.KeepAliveLease, request).remaining_seconds)

    def resize(self, lease_id: str, request: ResizeRequest) -> lease_pb2.ResizeLeaseResponse:
        """Changes sizes of a lease. The answer contains the changed lease."""
        message = lease_pb2.ResizeLeaseRequest(
            lease_id=lease_id,
            memory_bytes=request.memory_bytes,
            memory_ppm=request.memory_ppm,
            share_request_ppm=request.share_request_ppm,
            share_limit_ppm=request.share_limit_ppm,
            policy=None if request.policy is None else _policy(request.policy),
            priority=request.priority,
            weight=request.weight,
            kill=request.kill,
        )
        answer: lease_pb2.ResizeLeaseResponse = self._call(
            lambda: self._leases.ResizeLease, message
        )
        return answer

    def pause(self, lease_id: str) -> lease_pb2.PauseLeaseResponse:
        """Stops the device work of a lease."""
        request = lease_pb2.PauseLeaseRequest(lease_id=lease_id)
        answer: lease_pb2.PauseLeaseResponse = self._call(lambda: self._leases.PauseLease, request)
        return answer

    def resume(self, lease_id: str) -> lease_pb2.ResumeLeaseResponse:
        """Allows the device work of a paused lease again."""
        request = lease_pb2.ResumeLeaseRequest(lease_id=lease_id)
        answer: lease_pb2.ResumeLeaseResponse = self._call(
            lambda: self._leases.ResumeLease, request
        )
        return answer

    def node(self) -> node_pb2.Node:
        """Returns the state of the server as a whole."""
        answer: node_pb2.GetNodeResponse = self._call(
            lambda: self._node.GetNode, node_pb2.GetNodeRequest()
        )
        return answer.node

    def drain(self, end_after_seconds: float | None = None) -> node_pb2.DrainNodeResponse:
        """Makes the server accept no new leases and sessions.

        After `end_after_seconds`, if given, all leases end.
        """
        request = node_pb2.DrainNodeRequest(end_after_seconds=end_after_seconds)
        answer: node_pb2.DrainNodeResponse = self._call(lambda: self._node.DrainNode, request)
        return answer

    def undrain(self) -> node_pb2.UndrainNodeResponse:
        """Makes the server accept new leases and sessions again."""
        request = node_pb2.UndrainNodeRequest()
        answer: node_pb2.UndrainNodeResponse = self._call(lambda: self._node.UndrainNode, request)
        return answer

    def tenants(self) -> list[node_pb2.TenantQuota]:
        """Returns the quotas that each tenant owns and holds."""
        return list(
            self._call(lambda: self._node.ListTenants, node_pb2.ListTenantsRequest()).quotas
        )

    def now(self) -> observe_pb2.GetNowResponse:
        """Returns the activity of devices and leases at this moment."""
        answer: observe_pb2.GetNowResponse = self._call(
            lambda: self._observe.GetNow, observe_pb2.GetNowRequest()
        )
        return answer

    def record(
        self, since_seconds: float, tenant: str = "", by_lease: bool = False, max_steps: int = 0
    ) -> observe_pb2.GetRecordResponse:
        """Returns the server's record of the last since_seconds, for each tenant or each lease."""
        request = observe_pb2.GetRecordRequest(
            since_seconds=since_seconds, tenant=tenant, by_lease=by_lease, max_steps=max_steps
        )
        answer: observe_pb2.GetRecordResponse = self._call(lambda: self._observe.GetRecord, request)
        return answer

    def log(self, lease: str = "", after: int = 0) -> log_pb2.GetLogResponse:
        """Returns what happened to a lease, or to all leases; only what is newer than `after`.

        NotThereError: it has no log of such a lease.
        """
        request = log_pb2.GetLogRequest(lease=lease, after=after)
        answer: log_pb2.GetLogResponse = self._call(lambda: self._log.GetLog, request)
        return answer

    def revoke(self, lease_id: str) -> int:
        """Ends a lease and returns how many sessions ended with it."""
        request = lease_pb2.RevokeLeaseRequest(lease_id=lease_id)
        return int(self._call(lambda: self._leases.RevokeLease, request).ended_sessions)

    def cancel(self, claim: int) -> None:
        """Takes a claim out of the line in which it waits."""
        self._call(lambda: self._leases.CancelClaim, lease_pb2.CancelClaimRequest(claim=claim))

    def _call(self, method: Callable[[], Callable[..., Any]], request: Any) -> Any:
        """method: gives the method at the address that is open now, which may change once."""
        left = min(self._timeout, max(self._until - time.monotonic(), 0.0))
        try:
            return method()(request, timeout=left, metadata=self._metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAUTHENTICATED and self._goes_on_to_socket():
                return self._call(method, request)
            kind = _KINDS.get(error.code(), ServerError)
            raise kind(one_line(self._sentence(error))) from None

    def _goes_on_to_socket(self) -> bool:
        """Opens the server's Unix socket in place of its port. False: there is none to go to."""
        if not self._names_server:
            return False
        self._names_server = False
        socket = _own_socket(self._server, self._environment)
        if socket is None:
            return False
        self._channel.close()
        self._open(socket)
        return True

    def _sentence(self, error: Any) -> str:
        code, details = error.code(), str(error.details() or "")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            waited = f"did not answer within {self._timeout:g} s"
            return f"the server at {self._server} {waited}{SILENT_REMEDY}"
        if code is grpc.StatusCode.UNIMPLEMENTED:
            return f"the server at {self._server} has another release: {details}"
        if code is not grpc.StatusCode.UNAVAILABLE or details.startswith("the server"):
            return details or f"the server at {self._server} answered {code.name}"
        fault = _fault(self._server)
        if fault:
            return fault
        if speaks_tls(self._server):
            reason = details.splitlines()[0] if details else "no reason"
            return (
                f"no rgpu server answers at {self._server}, or one of the two does not trust the "
                f"other: check the address, RGPU_TLS_CA, RGPU_TLS_CERT and RGPU_TLS_KEY ({reason})"
            )
        return (
            f"no rgpu server answers at {self._server}: start one with `rgpu serve`, or name its "
            "address with --server or RGPU_SERVER"
        )


def _own_socket(server: Endpoint, environment: Mapping[str, str]) -> Endpoint | None:
    """Returns the Unix socket of a server that runs on this machine; None: it names none here."""
    from netprobe.survey import find, local_path, paths_of

    try:
        found = find(str(server), _LOOK_SECONDS)
    except RgpuError:
        return None
    path = local_path(found, paths_of(found, environment).uris) if found.same_host else None
    return None if path is None else parse_endpoint(path)


def _fault(server: Endpoint) -> str:
    """Returns the sentence that a program would get for this address; "" if the cause is unknown.

    gRPC itself reports most faults only as "unavailable".
    """
    if isinstance(server, GrpcEndpoint):
        from rgpu_client.session.trust import look

        return look(server, os.environ, _LOOK_SECONDS)
    from netprobe.candidates import normal
    from netprobe.native import Line

    try:
        with Line(normal(str(server)), _LOOK_SECONDS):
            return ""
    except RgpuError as error:
        return str(error)


def _policy(policy: SharePolicy | None) -> lease_pb2.SharePolicy.ValueType:
    if policy is None:
        return lease_pb2.SHARE_POLICY_UNSPECIFIED
    return lease_pb2.SharePolicy.Value(f"SHARE_POLICY_{policy.name}")
