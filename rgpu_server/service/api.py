"""The control-plane API: protobuf in, events to the node, protobuf out.  No decision is made
here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from rgpu_common import release
from rgpu_common.v1 import (
    device_pb2,
    device_pb2_grpc,
    lease_pb2,
    lease_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
)
from rgpu_common.wire.frame import WIRE_MAJOR, WIRE_MINOR
from rgpu_server.core import events as on
from rgpu_server.core.model import Code, LeaseState, Refusal, SessionState, Wish
from rgpu_server.service.desk import DEFAULT_TENANT

if TYPE_CHECKING:
    from grpc.aio import ServicerContext as Context

    from rgpu_server.core.actions import Answer
    from rgpu_server.observe.snapshot import DeviceView, LeaseView, Observer, SessionView
    from rgpu_server.workers.pages import Counters

MAX_NAME_CHARACTERS = 256

_HANDSHAKE_MS = 10_000
_IDLE_MS = 60_000
_STATUS = {
    Code.BAD_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    Code.NO_SUCH_DEVICE: grpc.StatusCode.NOT_FOUND,
    Code.NO_MEMORY: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.LEASE_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Code.LEASE_ENDED: grpc.StatusCode.NOT_FOUND,
    Code.LEASE_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    Code.LEASE_TOO_SMALL: grpc.StatusCode.FAILED_PRECONDITION,
    Code.LEASE_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.TENANT_LIMIT: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.SERVER_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.NO_WORKER: grpc.StatusCode.UNAVAILABLE,
    Code.STOPPING: grpc.StatusCode.UNAVAILABLE,
}
_KINDS = {
    "emulated": device_pb2.DEVICE_KIND_EMULATED,
    "cuda": device_pb2.DEVICE_KIND_CUDA,
}
_LEASE_STATES = {
    LeaseState.ACTIVE: lease_pb2.LEASE_STATE_ACTIVE,
    LeaseState.REVOKED: lease_pb2.LEASE_STATE_REVOKED,
    LeaseState.EXPIRED: lease_pb2.LEASE_STATE_EXPIRED,
}
_SESSION_STATES = {
    SessionState.WAITING: session_pb2.SESSION_STATE_WAITING,
    SessionState.OPENING: session_pb2.SESSION_STATE_OPENING,
    SessionState.OPEN: session_pb2.SESSION_STATE_OPEN,
    SessionState.ENDING: session_pb2.SESSION_STATE_ENDING,
}


class DeviceService(device_pb2_grpc.DeviceServiceServicer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def ListDevices(self, request: Any, context: Context) -> device_pb2.ListDevicesResponse:
        return device_pb2.ListDevicesResponse(
            devices=[_device(view) for view in self._observer.devices()],
            server_release=release(),
            wire_major=WIRE_MAJOR,
            wire_minor=WIRE_MINOR,
        )


class LeaseService(lease_pb2_grpc.LeaseServiceServicer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def GrantLease(
        self, request: lease_pb2.GrantLeaseRequest, context: Context
    ) -> lease_pb2.GrantLeaseResponse:
        for name, text in (("tenant", request.tenant), ("key", request.key)):
            await _check_name(name, text, context)
        quota = request.quota
        wish = Wish(
            request.device if request.HasField("device") else None,
            quota.memory_bytes,
            quota.share_request_ppm,
            quota.share_limit_ppm,
        )
        number = self._observer.conductor.next_request()
        answer = await self._ask(
            number,
            on.LeaseRequested(
                number, request.tenant or DEFAULT_TENANT, request.key, wish, request.ttl_seconds
            ),
            context,
        )
        return lease_pb2.GrantLeaseResponse(lease=self._lease(answer.lease))

    async def KeepAliveLease(
        self, request: lease_pb2.KeepAliveLeaseRequest, context: Context
    ) -> lease_pb2.KeepAliveLeaseResponse:
        number = self._observer.conductor.next_request()
        answer = await self._ask(number, on.KeepAliveRequested(number, request.lease_id), context)
        view = self._observer.lease(answer.lease)
        return lease_pb2.KeepAliveLeaseResponse(
            remaining_seconds=view.remaining_seconds if view is not None else 0.0
        )

    async def ResizeLease(
        self, request: lease_pb2.ResizeLeaseRequest, context: Context
    ) -> lease_pb2.ResizeLeaseResponse:
        number = self._observer.conductor.next_request()
        sizes = [
            getattr(request, field) if request.HasField(field) else None
            for field in ("memory_bytes", "share_request_ppm", "share_limit_ppm")
        ]
        answer = await self._ask(
            number, on.ResizeRequested(number, request.lease_id, *sizes), context
        )
        return lease_pb2.ResizeLeaseResponse(lease=self._lease(answer.lease))

    async def RevokeLease(
        self, request: lease_pb2.RevokeLeaseRequest, context: Context
    ) -> lease_pb2.RevokeLeaseResponse:
        number = self._observer.conductor.next_request()
        answer = await self._ask(number, on.RevokeRequested(number, request.lease_id), context)
        return lease_pb2.RevokeLeaseResponse(ended_sessions=answer.ended_sessions)

    async def ListLeases(
        self, request: lease_pb2.ListLeasesRequest, context: Context
    ) -> lease_pb2.ListLeasesResponse:
        views = self._observer.leases(request.tenant)
        return lease_pb2.ListLeasesResponse(leases=[_lease(view) for view in views])

    async def _ask(self, number: int, event: on.Event, context: Context) -> Answer:
        answer = self._observer.conductor.ask(number, event)
        if isinstance(answer, Refusal):
            await _abort(answer, context)
        return answer

    def _lease(self, lease_id: str) -> lease_pb2.Lease | None:
        view = self._observer.lease(lease_id)
        return None if view is None else _lease(view)


class SessionService(session_pb2_grpc.SessionServiceServicer):
    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    async def ListSessions(
        self, request: session_pb2.ListSessionsRequest, context: Context
    ) -> session_pb2.ListSessionsResponse:
        views = self._observer.sessions(request.tenant)
        return session_pb2.ListSessionsResponse(sessions=[_session(view) for view in views])

    async def GetUsage(
        self, request: session_pb2.GetUsageRequest, context: Context
    ) -> session_pb2.GetUsageResponse:
        views = self._observer.leases()
        if request.lease_id:
            views = [view for view in views if view.lease.id == request.lease_id]
            if not views:
                sentence = f"there is no lease {request.lease_id!r}; it may have ended"
                await _abort(Refusal(Code.LEASE_UNKNOWN, sentence), context)
        return session_pb2.GetUsageResponse(leases=[_lease_usage(view) for view in views])


async def start_api(observer: Observer, address: str) -> grpc.aio.Server:
    """Serves the API on `address` ("unix:/path") and returns the running server."""
    server = grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", 1 << 20),
            # Places are few: who begins no call, or none any more, makes room and connects again.
            ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
            ("grpc.max_connection_idle_ms", _IDLE_MS),
        ]
    )
    device_pb2_grpc.add_DeviceServiceServicer_to_server(DeviceService(observer), server)
    lease_pb2_grpc.add_LeaseServiceServicer_to_server(LeaseService(observer), server)
    session_pb2_grpc.add_SessionServiceServicer_to_server(SessionService(observer), server)
    server.add_insecure_port(address)
    await server.start()
    return server


async def _abort(refusal: Refusal, context: Context) -> NoReturn:
    await context.abort(_STATUS[refusal.code], refusal.sentence)
    raise AssertionError("abort does not return")


async def _check_name(name: str, text: str, context: Context) -> None:
    if len(text) > MAX_NAME_CHARACTERS or not text.isprintable():
        sentence = f"the {name} has at most {MAX_NAME_CHARACTERS} printable characters"
        await _abort(Refusal(Code.BAD_REQUEST, sentence), context)


def _device(view: DeviceView) -> device_pb2.Device:
    return device_pb2.Device(
        ordinal=view.ordinal,
        kind=_KINDS[view.facts.kind],
        name=view.facts.name,
        uuid=view.facts.uuid,
        memory_bytes=view.facts.memory_bytes,
        leased_memory_bytes=view.leased_bytes,
        used_memory_bytes=view.used_bytes,
        leased_share_ppm=view.leased_share_ppm,
        leases=view.leases,
        sessions=view.sessions,
    )


def _lease(view: LeaseView) -> lease_pb2.Lease:
    lease = view.lease
    return lease_pb2.Lease(
        lease_id=lease.id,
        tenant=lease.key.tenant,
        key=lease.key.name,
        device=lease.device,
        quota=lease_pb2.Quota(
            memory_bytes=lease.quota.memory_bytes,
            share_request_ppm=lease.quota.share_request_ppm,
            share_limit_ppm=lease.quota.share_limit_ppm,
        ),
        state=_LEASE_STATES[lease.state],
        explicit=lease.explicit,
        remaining_seconds=view.remaining_seconds,
        session_ids=sorted(lease.slots.values()),
        used_memory_bytes=view.counters.used_bytes,
        refused_allocations=view.counters.refused,
    )


def _session(view: SessionView) -> session_pb2.Session:
    session = view.session
    return session_pb2.Session(
        session_id=session.id,
        tenant=session.tenant,
        lease_id=view.lease.id,
        lease_key=view.lease.key.name,
        device=view.lease.device,
        state=_SESSION_STATES[session.state],
        program=view.program,
        client_pid=view.client_pid,
        peer=view.peer,
        worker_pid=view.worker_pid,
        age_seconds=view.age_seconds,
        usage=_usage(view.counters),
    )


def _lease_usage(view: LeaseView) -> session_pb2.LeaseUsage:
    lease = view.lease
    return session_pb2.LeaseUsage(
        lease_id=lease.id,
        lease_key=lease.key.name,
        tenant=lease.key.tenant,
        device=lease.device,
        memory_limit_bytes=lease.quota.memory_bytes,
        share_request_ppm=lease.quota.share_request_ppm,
        share_limit_ppm=lease.quota.share_limit_ppm,
        usage=_usage(view.counters),
    )


def _usage(counters: Counters) -> session_pb2.Usage:
    return session_pb2.Usage(
        memory_used_bytes=counters.used_bytes,
        memory_peak_bytes=counters.peak_bytes,
        refused_allocations=counters.refused,
        launches=counters.launches,
        copied_bytes=counters.copied_bytes,
        busy_ns=counters.busy_ns,
    )
