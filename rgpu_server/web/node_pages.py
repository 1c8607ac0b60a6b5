"""What the page of a server shows, and its operators' orders.

All of it goes through the services of the control-plane API, which check the caller.
"""

from __future__ import annotations

import asyncio
import math
import socket
from typing import TYPE_CHECKING, Any

from rgpu_common.v1 import (
    device_pb2,
    lease_pb2,
    node_pb2,
    observe_pb2,
    session_pb2,
)
from rgpu_server.identity.guard import Known, acting_as
from rgpu_server.service.api import DeviceService, LeaseService, NodeService, SessionService
from rgpu_server.web.calls import CallRefusedError, OwnCall
from rgpu_server.web.node_orders import lease_order, node_order
from rgpu_server.web.rows import (
    device_row,
    event_row,
    lease_row,
    series_row,
    session_row,
    tenant_row,
    waiting_row,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rgpu_server.observe.journal import Journal
    from rgpu_server.service.api import Services
    from rgpu_server.service.observing import ObserveService
    from rgpu_server.web.changes import State

# So many events are shown, the newest.
_MOST_EVENTS = 400


class NodePages:
    """One server (`rgpu_server.web.site.Pages`)."""

    kind = "server"

    def __init__(self, services: Services, observing: ObserveService, journal: Journal) -> None:
        self.title = socket.gethostname()
        self._observer = services.observer
        self._devices = DeviceService(services.observer)
        self._leases = LeaseService(services.observer, services.control)
        self._sessions = SessionService(services.observer)
        self._node = NodeService(services.observer, services.control)
        self._observing = observing
        self._journal = journal

    async def states(self, callers: Sequence[Known]) -> Sequence[State]:
        """Returns the tables of the page."""
        states = []
        for caller in callers:
            # The server's other work goes on between two callers. What one of them sees is one
            # moment, because no call in `_state` waits for anything.
            await asyncio.sleep(0)
            with self._observer.held():
                states.append(await self._state(caller))
        return states

    async def _state(self, caller: Known) -> State:
        call: Any = OwnCall(caller.identity)
        with acting_as(caller):
            now = await self._observing.GetNow(observe_pb2.GetNowRequest(), call)
            devices = await self._devices.ListDevices(device_pb2.ListDevicesRequest(), call)
            leases = await self._leases.ListLeases(lease_pb2.ListLeasesRequest(), call)
            sessions = await self._sessions.ListSessions(session_pb2.ListSessionsRequest(), call)
            tenants = await self._node.ListTenants(node_pb2.ListTenantsRequest(), call)
        at, of_lease = now.time_seconds, {one.lease_id: one for one in now.leases}
        found = [
            (one.lease_id, lease_row(one, of_lease[one.lease_id], at))
            for one in leases.leases
            if one.lease_id in of_lease
        ]
        return {
            "server": {"": _server_row(now, devices, sessions)},
            "devices": self._device_rows(now, devices),
            "leases": dict(found),
            "sessions": {str(one.session_id): session_row(one, at) for one in sessions.sessions},
            "waiting": _waiting_rows(sessions, at),
            "tenants": {f"{one.tenant}\n{one.model}": tenant_row(one) for one in tenants.quotas},
            "events": self._events(caller),
        }

    def _device_rows(
        self, now: observe_pb2.GetNowResponse, devices: device_pb2.ListDevicesResponse
    ) -> dict[str, dict[str, Any]]:
        lent = {one.ordinal: 0 for one in now.devices}
        for lease in now.leases:
            lent[lease.device] += max(lease.share_1s_ppm - lease.share_request_ppm, 0)
        rates = {one.ordinal: one for one in now.devices}
        return {
            str(one.ordinal): device_row(one, rates[one.ordinal], lent[one.ordinal])
            for one in devices.devices
        }

    def _events(self, caller: Known) -> dict[str, dict[str, Any]]:
        identity = caller.identity
        everything = identity.operator or identity.tenant is None
        seen = list(self._journal.entries(identity.sees, everything))[-_MOST_EVENTS:]
        return {str(entry.number): event_row(entry) for entry in seen}

    async def ask(self, caller: Known, what: str, query: Mapping[str, str]) -> Any:
        """Answers `record`: the shares over time, of tenants or of one lease."""
        if what != "record":
            raise CallRefusedError(404, f"there is no question {what[:64]!r}")
        request = observe_pb2.GetRecordRequest(
            since_seconds=_number(query, "since"),
            max_steps=int(min(_number(query, "steps"), 600)),
            lease_id=query.get("lease", ""),
        )
        call: Any = OwnCall(caller.identity)
        with acting_as(caller):
            answer = await self._observing.GetRecord(request, call)
        return {
            "start_seconds": answer.start_seconds,
            "step_seconds": answer.step_seconds,
            "steps": answer.steps,
            "series": [series_row(one) for one in answer.series],
        }

    async def order(self, caller: Known, order: str, body: Mapping[str, Any]) -> str:
        """Carries an order about a lease or about the server out."""
        call: Any = OwnCall(caller.identity)
        with acting_as(caller):
            if order in ("drain", "undrain"):
                return await node_order(self._node, order, body, call)
            return await lease_order(self._leases, order, body, call)


def _server_row(
    now: observe_pb2.GetNowResponse,
    devices: device_pb2.ListDevicesResponse,
    sessions: session_pb2.ListSessionsResponse,
) -> dict[str, Any]:
    ends = now.time_seconds + devices.end_after_seconds
    return {
        "at": now.time_seconds,
        "draining": now.draining,
        "ends_at": round(ends) if devices.HasField("end_after_seconds") else 0,
        "enforced": now.enforced,
        "others_waiting": sessions.others_waiting,
    }


def _waiting_rows(
    sessions: session_pb2.ListSessionsResponse, at: float
) -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for number, claim in enumerate(sessions.waiting):
        row = waiting_row(claim, at)
        key = f"{claim.tenant}\n{claim.lease_key}\n{row['since']}"
        rows[key if key not in rows else f"{key}\n{number}"] = row
    return rows


def _number(query: Mapping[str, str], name: str) -> float:
    try:
        value = float(query.get(name, "0"))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise CallRefusedError(400, f"{name} has to be a number from 0 on")
    return value
