"""Converts the node's state into messages of the control-plane API, and requests into wishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.sharing import SharePolicy
from rgpu_common.v1 import device_pb2, lease_pb2, node_pb2, session_pb2
from rgpu_server.core.model import Amount, LeaseState, SessionState, Wish
from rgpu_server.core.pool import seam_of
from rgpu_server.core.shares import Change

if TYPE_CHECKING:
    from rgpu_server.core.lease import Lease
    from rgpu_server.observe.snapshot import (
        DeviceView,
        LeaseView,
        NodeView,
        SessionView,
        TenantView,
        WaitingView,
    )
    from rgpu_server.workers.pages import Counters

_KINDS = {
    "emulated": device_pb2.DEVICE_KIND_EMULATED,
    "cuda": device_pb2.DEVICE_KIND_CUDA,
}
_LEASE_STATES = {
    LeaseState.ACTIVE: lease_pb2.LEASE_STATE_ACTIVE,
    LeaseState.REVOKED: lease_pb2.LEASE_STATE_REVOKED,
    LeaseState.EXPIRED: lease_pb2.LEASE_STATE_EXPIRED,
    LeaseState.RECLAIMED: lease_pb2.LEASE_STATE_RECLAIMED,
    LeaseState.DRAINED: lease_pb2.LEASE_STATE_DRAINED,
}
_SESSION_STATES = {
    SessionState.WAITING: session_pb2.SESSION_STATE_WAITING,
    SessionState.OPENING: session_pb2.SESSION_STATE_OPENING,
    SessionState.OPEN: session_pb2.SESSION_STATE_OPEN,
    SessionState.ENDING: session_pb2.SESSION_STATE_ENDING,
}
_POLICIES = {
    SharePolicy.NONE: lease_pb2.SHARE_POLICY_NONE,
    SharePolicy.FIXED: lease_pb2.SHARE_POLICY_FIXED,
    SharePolicy.BURST: lease_pb2.SHARE_POLICY_BURST,
    SharePolicy.BEST_EFFORT: lease_pb2.SHARE_POLICY_BEST_EFFORT,
}
_WORDS = {number: policy for policy, number in _POLICIES.items()}


def wish_of(request: lease_pb2.GrantLeaseRequest) -> Wish:
    """Returns the wish in a grant request; an unknown policy becomes the server's default."""
    quota = request.quota
    return Wish(
        request.device if request.HasField("device") else None,
        quota.memory_bytes,
        quota.share_request_ppm,
        quota.share_limit_ppm,
        quota.memory_ppm,
        _WORDS.get(quota.policy),
        quota.priority if quota.HasField("priority") else None,
        quota.weight if quota.HasField("weight") else None,
    )


def policy_of(word: lease_pb2.SharePolicy.ValueType) -> SharePolicy | None:
    """Returns the policy of a message; None for the server's default, and for an unknown one."""
    return _WORDS.get(word)


def change_of(request: lease_pb2.ResizeLeaseRequest) -> Change:
    """Returns the changes that a resize request names."""

    def named(field: str) -> int | None:
        return getattr(request, field) if request.HasField(field) else None  # type: ignore[arg-type]

    return Change(
        named("memory_bytes"),
        named("memory_ppm"),
        named("share_request_ppm"),
        named("share_limit_ppm"),
        _WORDS.get(request.policy) if request.HasField("policy") else None,
        named("priority"),
        named("weight"),
    )


def node_message(view: NodeView) -> node_pb2.Node:
    """Returns the view as a message."""
    return node_pb2.Node(
        draining=view.draining,
        end_after_seconds=view.end_after_seconds,
        leases=view.leases,
        sessions=view.sessions,
    )


def tenant_message(view: TenantView) -> node_pb2.TenantQuota:
    """Returns the view as a message."""
    return node_pb2.TenantQuota(
        tenant=view.tenant,
        model=view.model,
        owned=None if view.owned is None else amount_message(view.owned),
        held=amount_message(view.held),
        borrowed=amount_message(view.borrowed),
        idle=amount_message(view.idle),
        leases=view.leases,
        ceiling_share_ppm=view.ceiling[0],
        ceiling_memory_bytes=view.ceiling[1],
    )


def amount_message(amount: Amount) -> node_pb2.Amount:
    """Returns the amount as a message."""
    return node_pb2.Amount(share_ppm=amount.share_ppm, memory_bytes=amount.memory_bytes)


def device_message(view: DeviceView) -> device_pb2.Device:
    """Returns the view as a message."""
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
        pool=view.pool,
        mig=view.facts.mig,
    )


def lease_message(view: LeaseView) -> lease_pb2.Lease:
    """Returns the view as a message."""
    lease = view.lease
    return lease_pb2.Lease(
        lease_id=lease.id,
        tenant=lease.key.tenant,
        key=lease.key.name,
        name=lease.name,
        device=lease.device,
        quota=lease_pb2.Quota(
            memory_bytes=lease.quota.memory_bytes,
            share_request_ppm=lease.quota.share_request_ppm,
            share_limit_ppm=lease.quota.share_limit_ppm,
            policy=_POLICIES[lease.quota.policy],
            priority=lease.quota.priority,
            weight=lease.quota.weight,
        ),
        state=_lease_state(lease),
        explicit=lease.explicit,
        remaining_seconds=view.remaining_seconds,
        session_ids=sorted(lease.slots.values()),
        used_memory_bytes=view.counters.used_bytes,
        refused_allocations=view.counters.refused,
        asked_share_request_ppm=lease.asked_share_ppm,
        borrowed_share=view.borrowed_share,
        borrowed_memory=view.borrowed_memory,
        reclaim_seconds=view.reclaim_seconds,
    )


def _lease_state(lease: Lease) -> lease_pb2.LeaseState.ValueType:
    if lease.paused and lease.state is LeaseState.ACTIVE:
        return lease_pb2.LEASE_STATE_PAUSED
    return _LEASE_STATES[lease.state]


def session_message(view: SessionView) -> session_pb2.Session:
    """Returns the view as a message."""
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
        transport=view.transport,
        worker_pid=view.worker_pid,
        age_seconds=view.age_seconds,
        usage=usage_message(view.counters),
        compiling=view.compiling,
        seam=seam_of(view.session.library),
        round_trip_ns=view.round_trip_ns,
    )


def waiting_message(view: WaitingView) -> session_pb2.WaitingClaim:
    """Returns the view as a message."""
    waiter = view.waiter
    return session_pb2.WaitingClaim(
        tenant=view.tenant,
        lease_key=waiter.event.key,
        name=waiter.event.name,
        devices=sorted(waiter.devices),
        memory_bytes=waiter.quota.memory_bytes,
        share_request_ppm=waiter.quota.share_request_ppm,
        place=waiter.place,
        waiting=view.waiting,
        waited_seconds=view.waited_seconds,
        reason=waiter.why.sentence,
        origin=waiter.event.address,
        claim=waiter.event.claim,
    )


def lease_usage_message(view: LeaseView) -> session_pb2.LeaseUsage:
    """Returns the view as a message."""
    lease = view.lease
    return session_pb2.LeaseUsage(
        lease_id=lease.id,
        lease_key=lease.key.name,
        name=lease.name,
        tenant=lease.key.tenant,
        device=lease.device,
        memory_limit_bytes=lease.quota.memory_bytes,
        share_request_ppm=lease.quota.share_request_ppm,
        share_limit_ppm=lease.quota.share_limit_ppm,
        usage=usage_message(view.counters),
        ends_seconds=view.ends_seconds,
        paused=lease.paused,
    )


def usage_message(counters: Counters) -> session_pb2.Usage:
    """Returns the counters as a message."""
    return session_pb2.Usage(
        memory_used_bytes=counters.used_bytes,
        memory_peak_bytes=counters.peak_bytes,
        refused_allocations=counters.refused,
        launches=counters.launches,
        copied_bytes=counters.copied_bytes,
        busy_ns=counters.busy_ns,
    )
