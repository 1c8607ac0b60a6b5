"""Turns messages of the control-plane API into rows of the page. Pure.

The fields have the names that the messages have. Moments stand in place of durations, because a
moment does not change while time passes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_common.v1 import device_pb2, lease_pb2, session_pb2

if TYPE_CHECKING:
    from rgpu_common.v1 import node_pb2, observe_pb2
    from rgpu_server.observe.journal import Entry

_POLICY = "SHARE_POLICY_"
_STATE = "LEASE_STATE_"
_SESSION_STATE = "SESSION_STATE_"
_KIND = "DEVICE_KIND_"


def device_row(
    device: device_pb2.Device, now: observe_pb2.DeviceNow, lent_ppm: int
) -> dict[str, Any]:
    """lent_ppm: the time that leases had beyond their guaranteed shares."""
    return {
        "name": device.name,
        "uuid": device.uuid,
        "kind": _word(device_pb2.DeviceKind.Name(device.kind), _KIND),
        "mig": device.mig,
        "pool": device.pool,
        "memory_bytes": device.memory_bytes,
        "leased_memory_bytes": device.leased_memory_bytes,
        "used_memory_bytes": device.used_memory_bytes,
        "leased_share_ppm": device.leased_share_ppm,
        "share_1s_ppm": now.share_1s_ppm,
        "share_10s_ppm": now.share_10s_ppm,
        "lent_ppm": lent_ppm,
        "switches_per_second": round(now.switches_per_second, 1),
        "leases": device.leases,
        "sessions": device.sessions,
    }


def lease_row(
    lease: lease_pb2.Lease, now: observe_pb2.LeaseNow, time_seconds: float
) -> dict[str, Any]:
    """now: the same lease's rates and totals."""
    quota = lease.quota
    return {
        "tenant": lease.tenant,
        "key": lease.key,
        "name": lease.name,
        "device": lease.device,
        "state": _word(lease_pb2.LeaseState.Name(lease.state), _STATE),
        "explicit": lease.explicit,
        "policy": _word(lease_pb2.SharePolicy.Name(quota.policy), _POLICY),
        "priority": quota.priority,
        "weight": quota.weight,
        "asked_ppm": lease.asked_share_request_ppm,
        "share_request_ppm": quota.share_request_ppm,
        "share_limit_ppm": now.share_limit_ppm,
        "share_1s_ppm": now.share_1s_ppm,
        "share_10s_ppm": now.share_10s_ppm,
        "lent_ppm": max(now.share_1s_ppm - quota.share_request_ppm, 0),
        "waiting_ppm": now.waiting_ppm,
        "throttled_ppm": now.throttled_ppm,
        "memory_limit_bytes": quota.memory_bytes,
        "memory_used_bytes": now.memory_used_bytes,
        "memory_peak_bytes": now.memory_peak_bytes,
        "refused_allocations": now.refused_allocations,
        "launches_per_second": round(now.launches_per_second),
        "copied_bytes_per_second": round(now.copied_bytes_per_second),
        "device_seconds": round(now.device_ns / 1e9, 1),
        "launches": now.launches,
        "copied_bytes": now.copied_bytes,
        "sessions": now.sessions,
        "seams": sorted(set(now.seams)),
        "compiling": now.compiling,
        "borrowed_share": lease.borrowed_share,
        "borrowed_memory": lease.borrowed_memory,
        **_ends(lease, time_seconds),
    }


def _ends(lease: lease_pb2.Lease, time_seconds: float) -> dict[str, Any]:
    """When a lease ends, and when the server takes back what it has borrowed."""
    reclaim = lease.reclaim_seconds if lease.HasField("reclaim_seconds") else 0.0
    return {
        "ends_at": _moment(time_seconds, lease.remaining_seconds),
        "reclaim_at": _moment(time_seconds, reclaim),
    }


def session_row(session: session_pb2.Session, time_seconds: float) -> dict[str, Any]:
    """time_seconds: the moment of the message."""
    usage = session.usage
    return {
        "tenant": session.tenant,
        "lease": session.lease_id,
        "key": session.lease_key,
        "device": session.device,
        "state": _word(session_pb2.SessionState.Name(session.state), _SESSION_STATE),
        "program": session.program,
        "client_pid": session.client_pid,
        "worker_pid": session.worker_pid,
        "peer": session.peer,
        "transport": session.transport,
        "round_trip_ns": session.round_trip_ns,
        "seam": session.seam or "driver",
        "compiling": session.compiling,
        "since": round(time_seconds - session.age_seconds),
        "memory_used_bytes": usage.memory_used_bytes,
        "memory_peak_bytes": usage.memory_peak_bytes,
        "refused_allocations": usage.refused_allocations,
        "launches": usage.launches,
        "copied_bytes": usage.copied_bytes,
    }


def waiting_row(claim: session_pb2.WaitingClaim, time_seconds: float) -> dict[str, Any]:
    """time_seconds: the moment of the message."""
    return {
        "tenant": claim.tenant,
        "key": claim.lease_key,
        "name": claim.name,
        "devices": list(claim.devices),
        "memory_bytes": claim.memory_bytes,
        "share_request_ppm": claim.share_request_ppm,
        "place": claim.place,
        "waiting": claim.waiting,
        "since": round(time_seconds - claim.waited_seconds),
        "reason": claim.reason,
        "origin": claim.origin,
    }


def tenant_row(quota: node_pb2.TenantQuota) -> dict[str, Any]:
    """What a tenant owns, holds, borrows and leaves idle of one model."""

    def amount(said: node_pb2.Amount) -> list[int]:
        return [said.share_ppm, said.memory_bytes]

    return {
        "tenant": quota.tenant,
        "model": quota.model,
        "owned": amount(quota.owned) if quota.HasField("owned") else None,
        "ceiling": [
            quota.ceiling_share_ppm if quota.HasField("ceiling_share_ppm") else None,
            quota.ceiling_memory_bytes if quota.HasField("ceiling_memory_bytes") else None,
        ],
        "held": amount(quota.held),
        "borrowed": amount(quota.borrowed),
        "idle": amount(quota.idle),
        "leases": quota.leases,
    }


def event_row(entry: Entry) -> dict[str, Any]:
    """An event of the journal."""
    return {
        "at": round(entry.at, 1),
        "event": entry.event,
        "refusal": entry.refusal,
        "tenant": entry.tenant,
        "lease": entry.lease,
        "session": entry.session,
        "sentence": entry.sentence,
    }


def series_row(series: observe_pb2.UsageSeries) -> dict[str, Any]:
    """A line of a picture; one value for each step."""
    return {
        "tenant": series.tenant,
        "lease": series.lease_id,
        "key": series.key,
        "device": series.device,
        "leases": list(series.leases),
        "share_ppm": list(series.share_ppm),
        "request_ppm": list(series.request_ppm),
        "limit_ppm": list(series.limit_ppm),
        "waiting_ppm": list(series.waiting_ppm),
        "throttled_ppm": list(series.throttled_ppm),
        "memory_used_bytes": list(series.memory_used_bytes),
        "memory_limit_bytes": list(series.memory_limit_bytes),
    }


def _word(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower().replace("_", "-")


def _moment(time_seconds: float, left_seconds: float) -> int:
    """Returns when a time ends, in seconds since 1970; 0: there is no such time."""
    return round(time_seconds + left_seconds) if left_seconds > 0 else 0
