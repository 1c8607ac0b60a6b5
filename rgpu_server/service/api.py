"""The control-plane API: turns protobuf requests into calls of `Control` and `Observer`, and their
answers into protobuf. It makes no decisions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from msgspec import Struct

from rgpu_common import release
from rgpu_common.clusters import MAX_NAME
from rgpu_common.texts import one_line
from rgpu_common.v1 import (
    device_pb2,
    device_pb2_grpc,
    lease_pb2,
    lease_pb2_grpc,
    log_pb2_grpc,
    network_pb2_grpc,
    node_pb2,
    node_pb2_grpc,
    observe_pb2_grpc,
    orders_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from rgpu_common.wire.frame import WIRE_MAJOR, WIRE_MINOR
from rgpu_server.core.model import Code, Refusal
from rgpu_server.identity.guard import Guard, known
from rgpu_server.observe.audit import audit
from rgpu_server.service.logs import LogService
from rgpu_server.service.messages import (
    change_of,
    device_message,
    lease_message,
    lease_usage_message,
    node_message,
    session_message,
    tenant_message,
    waiting_message,
    wish_of,
)

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context

    from rgpu_common.v1.orders_pb2_grpc import NodeOrderServiceServicer
    from rgpu_server.core.actions import Answer
    from rgpu_server.observe.lease_log import LeaseLog
    from rgpu_server.observe.snapshot import Observer
    from rgpu_server.service.control import Control
    from rgpu_server.service.observing import ObserveService
    from rgpu_server.service.offers import NetworkService

MAX_NAME_CHARACTERS = 256

_HANDSHAKE_MS = 10_000
_IDLE_MS = 60_000
_STATUS = {
    Code.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Code.NO_SUCH_DEVICE: grpc.StatusCode.NOT_FOUND,
    Code.NO_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.NO_SHARE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.LENT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.IN_LINE: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.DRAINING: grpc.StatusCode.UNAVAILABLE,
    Code.LEASE_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Code.LEASE_ENDED: grpc.StatusCode.NOT_FOUND,
    Code.LEASE_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.LEASE_TOO_SMALL: grpc.StatusCode.FAILED_PRECONDITION,
    Code.LEASE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.TENANT_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.SERVER_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.NO_WORKER: grpc.StatusCode.UNAVAILABLE,
    Code.STOPPING: grpc.StatusCode.UNAVAILABLE,
    Code.NOT_IDENTIFIED: grpc.StatusCode.UNAUTHENTICATED,
    Code.NOT_ALLOWED: grpc.StatusCode.PERMISSION_DENIED,
}

_CANCELLED = "the run was cancelled with `rgpu cancel`"


class DeviceService(device_pb2_grpc.DeviceServiceServicer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def ListDevices(self, request: Any, context: Context) -> device_pb2.ListDevicesResponse:
        node = self._observer.node()
        return device_pb2.ListDevicesResponse(
            draining=node.draining,
            end_after_seconds=node.end_after_seconds,
            devices=[device_message(view) for view in self._observer.devices()],
            server_release=release(),
            wire_major=WIRE_MAJOR,
            wire_minor=WIRE_MINOR,
        )


class LeaseService(lease_pb2_grpc.LeaseServiceServicer):
    def __init__(self, observer: Observer, control: Control) -> None:
        self._observer = observer
        self._control = control

    async def GrantLease(
        self, request: lease_pb2.GrantLeaseRequest, context: Context
    ) -> lease_pb2.GrantLeaseResponse:
        for name, text in (("tenant", request.tenant), ("key", request.key)):
            await _check_name(name, text, context)
        tenant = known().identity.speaks_for(request.tenant)
        if isinstance(tenant, Refusal):
            await _abort(tenant, context)
        bound = known().identity.may_use("")
        if bound is not None:
            await _abort(bound, context)
        wish, ttl, operator = wish_of(request), request.ttl_seconds, known().identity.operator
        granted = self._control.grant(
            tenant, request.key, wish, ttl,
            passes_line=operator and not request.behind_line, by_operator=operator,
            name=one_line(request.name, MAX_NAME),
        )  # fmt: skip
        if isinstance(granted, Refusal):
            audit("lease_refused", tenant=tenant, key=request.key, sentence=granted.sentence)
        answer = await _answered(granted, context)
        return lease_pb2.GrantLeaseResponse(lease=self._lease(answer.lease))

    async def KeepAliveLease(
        self, request: lease_pb2.KeepAliveLeaseRequest, context: Context
    ) -> lease_pb2.KeepAliveLeaseResponse:
        await self._may_touch(request.lease_id, context)
        answer = await _answered(self._control.keep_alive(request.lease_id), context)
        # Not by a view of the lease: what it borrows depends on all leases, and every holder of a
        # lease comes here again and again.
        remaining = self._observer.remaining_seconds(answer.lease)
        return lease_pb2.KeepAliveLeaseResponse(remaining_seconds=remaining)

    async def ResizeLease(
        self, request: lease_pb2.ResizeLeaseRequest, context: Context
    ) -> lease_pb2.ResizeLeaseResponse:
        await self._may_touch(request.lease_id, context)
        change, used = change_of(request), self._observer.held_bytes(request.lease_id)
        resized = self._control.resize(
            request.lease_id, change, used,
            kill=request.kill, by_operator=known().identity.operator,
        )  # fmt: skip
        answer = await _answered(resized, context)
        self._note("lease_resized", answer.lease)
        return lease_pb2.ResizeLeaseResponse(
            lease=self._lease(answer.lease), ended_sessions=answer.ended_sessions
        )

    async def PauseLease(
        self, request: lease_pb2.PauseLeaseRequest, context: Context
    ) -> lease_pb2.PauseLeaseResponse:
        answer = await self._pause(request.lease_id, True, context)
        return lease_pb2.PauseLeaseResponse(
            lease=self._lease(answer.lease), unchanged=answer.unchanged
        )

    async def ResumeLease(
        self, request: lease_pb2.ResumeLeaseRequest, context: Context
    ) -> lease_pb2.ResumeLeaseResponse:
        answer = await self._pause(request.lease_id, False, context)
        return lease_pb2.ResumeLeaseResponse(
            lease=self._lease(answer.lease), unchanged=answer.unchanged
        )

    async def _pause(self, lease_id: str, paused: bool, context: Context) -> Answer:
        await self._may_touch(lease_id, context)
        said = self._control.pause(lease_id, paused, by_operator=known().identity.operator)
        answer = await _answered(said, context)
        if not answer.unchanged:
            self._note("lease_paused" if paused else "lease_resumed", answer.lease)
        return answer

    async def RevokeLease(
        self, request: lease_pb2.RevokeLeaseRequest, context: Context
    ) -> lease_pb2.RevokeLeaseResponse:
        await self._may_touch(request.lease_id, context)
        tenant = self._observer.tenant_of(request.lease_id)
        answer = await _answered(self._control.revoke(request.lease_id), context)
        audit("lease_revoked", lease=answer.lease, tenant=tenant, **known().noted)
        return lease_pb2.RevokeLeaseResponse(ended_sessions=answer.ended_sessions)

    async def CancelClaim(
        self, request: lease_pb2.CancelClaimRequest, context: Context
    ) -> lease_pb2.CancelClaimResponse:
        found = [x for x in self._observer.waiting() if x.waiter.event.claim == request.claim]
        if not found or not known().identity.sees(found[0].tenant):
            sentence = f"no claim {request.claim} waits; `rgpu ps` shows those that do"
            await _abort(Refusal(Code.LEASE_UNKNOWN, sentence), context)
        await _answered(self._control.cancel(request.claim, _CANCELLED), context)
        audit("claim_cancelled", tenant=found[0].tenant, key=found[0].waiter.event.key,
              **known().noted)  # fmt: skip
        return lease_pb2.CancelClaimResponse()

    async def ListLeases(
        self, request: lease_pb2.ListLeasesRequest, context: Context
    ) -> lease_pb2.ListLeasesResponse:
        await _check_sight(request.tenant, context)
        views = self._observer.leases(request.tenant)
        views = [view for view in views if known().identity.sees(view.lease.key.tenant)]
        return lease_pb2.ListLeasesResponse(leases=[lease_message(view) for view in views])

    async def _may_touch(self, lease_id: str, context: Context) -> None:
        """Answers for another tenant's lease as if there were no such lease."""
        tenant = self._observer.tenant_of(lease_id)
        if tenant is not None and not known().identity.sees(tenant):
            sentence = f"there is no lease {lease_id!r}; it may have expired: grant a new one"
            await _abort(Refusal(Code.LEASE_UNKNOWN, sentence), context)

    def _note(self, event: str, lease: str) -> None:
        """Writes down who has changed a lease."""
        audit(event, lease=lease, tenant=self._observer.tenant_of(lease), **known().noted)

    def _lease(self, lease_id: str) -> lease_pb2.Lease | None:
        view = self._observer.lease(lease_id)
        return None if view is None else lease_message(view)


class SessionService(session_pb2_grpc.SessionServiceServicer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        await _check_sight(request.tenant, context)
        sees = known().identity.sees
        views = [v for v in self._observer.sessions(request.tenant) if sees(v.session.tenant)]
        waiting = self._observer.waiting()
        mine = [view for view in waiting if sees(view.tenant)]
        shown = [view for view in mine if request.tenant in ("", view.tenant)]
        return session_pb2.ListSessionsResponse(
            sessions=[session_message(view) for view in views],
            waiting=[waiting_message(view) for view in shown],
            others_waiting=len(waiting) - len(mine),
        )

    async def GetUsage(
        self, request: session_pb2.GetUsageRequest, context: Context
    ) -> session_pb2.GetUsageResponse:
        views = self._observer.leases()
        views = [view for view in views if known().identity.sees(view.lease.key.tenant)]
        if request.lease_id:
            views = [view for view in views if view.lease.id == request.lease_id]
            if not views:
                sentence = f"there is no lease {request.lease_id!r}; it may have ended"
                await _abort(Refusal(Code.LEASE_UNKNOWN, sentence), context)
        return session_pb2.GetUsageResponse(leases=[lease_usage_message(view) for view in views])


class NodeService(node_pb2_grpc.NodeServiceServicer):
    def __init__(self, observer: Observer, control: Control) -> None:
        self._observer = observer
        self._control = control

    async def GetNode(self, request: Any, context: Context) -> node_pb2.GetNodeResponse:
        return node_pb2.GetNodeResponse(node=node_message(self._observer.node()))

    async def DrainNode(
        self, request: node_pb2.DrainNodeRequest, context: Context
    ) -> node_pb2.DrainNodeResponse:
        await _check_operator("drain the server", context)
        seconds = request.end_after_seconds if request.HasField("end_after_seconds") else None
        answer = await _answered(self._control.drain(seconds), context)
        if not answer.unchanged:
            audit("node_drained", end_after_seconds=seconds, **known().noted)
        return node_pb2.DrainNodeResponse(
            node=node_message(self._observer.node()), unchanged=answer.unchanged
        )

    async def UndrainNode(self, request: Any, context: Context) -> node_pb2.UndrainNodeResponse:
        await _check_operator("undrain the server", context)
        answer = await _answered(self._control.undrain(), context)
        if not answer.unchanged:
            audit("node_undrained", **known().noted)
        return node_pb2.UndrainNodeResponse(
            node=node_message(self._observer.node()), unchanged=answer.unchanged
        )

    async def ListTenants(self, request: Any, context: Context) -> node_pb2.ListTenantsResponse:
        views = [view for view in self._observer.tenants() if known().identity.sees(view.tenant)]
        return node_pb2.ListTenantsResponse(quotas=[tenant_message(view) for view in views])


class Services(Struct, frozen=True):
    """What the API's services read from, and change the server through."""

    observer: Observer
    control: Control
    network: NetworkService
    orders: NodeOrderServiceServicer
    log: LeaseLog
    observing: ObserveService


async def start_api(services: Services, address: str, guard: Guard) -> grpc.aio.Server:
    """Serves the API on `address` ("unix:/path") and returns the running server."""
    observer, control = services.observer, services.control
    server = grpc.aio.server(
        interceptors=[guard],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", 1 << 20),
            # Places for connections are few: a client that starts no call, or starts no more, is
            # disconnected and can connect again.
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
        ],
    )
    device_pb2_grpc.add_DeviceServiceServicer_to_server(DeviceService(observer), server)
    lease_pb2_grpc.add_LeaseServiceServicer_to_server(LeaseService(observer, control), server)
    session_pb2_grpc.add_SessionServiceServicer_to_server(SessionService(observer), server)
    node_pb2_grpc.add_NodeServiceServicer_to_server(NodeService(observer, control), server)
    observe_pb2_grpc.add_ObserveServiceServicer_to_server(services.observing, server)
    log_pb2_grpc.add_LogServiceServicer_to_server(LogService(services.log), server)
    network_pb2_grpc.add_NetworkServiceServicer_to_server(services.network, server)
    orders_pb2_grpc.add_NodeOrderServiceServicer_to_server(services.orders, server)
    server.add_insecure_port(address)
    await server.start()
    return server


async def _answered(answer: Answer | Refusal, context: Context) -> Answer:
    if isinstance(answer, Refusal):
        await _abort(answer, context)
    return answer


async def _abort(refusal: Refusal, context: Context) -> NoReturn:
    await context.abort(_STATUS[refusal.code], refusal.sentence)
    raise AssertionError("abort does not return")


async def _check_name(name: str, text: str, context: Context) -> None:
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        sentence = f"the {name} has at most {MAX_NAME_CHARACTERS} printable characters"
        await _abort(Refusal(Code.BAD_REQUEST, sentence), context)


async def _check_sight(tenant: str, context: Context) -> None:
    """Refuses if the caller asks for another tenant that it may not see."""
    if tenant and not known().identity.sees(tenant):
        sentence = f"only tenant {tenant!r} and operators may see what belongs to this tenant"
        await _abort(Refusal(Code.NOT_ALLOWED, sentence), context)


async def _check_operator(what: str, context: Context) -> None:
    if not known().identity.operator:
        sentence = (
            f"only an operator may {what}: use the access token of a tenant in identity.operators "
            "of this server's configuration, or its Unix socket as its own user"
        )
        await _abort(Refusal(Code.NOT_ALLOWED, sentence), context)
