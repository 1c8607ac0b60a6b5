"""Orders of operators to a server: the calls of gRPC that stand for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT
from rgpu_common.units import counted, format_bytes, format_share
from rgpu_common.v1 import lease_pb2, node_pb2
from rgpu_server.web.calls import CallRefusedError
from rgpu_server.web.words import (
    bytes_of,
    flag_of,
    needed,
    number_of,
    policy_of,
    seconds_of,
    share_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.service.api import LeaseService, NodeService

_MOST_SECONDS = 366 * 86400.0


async def lease_order(leases: LeaseService, order: str, body: Mapping[str, Any], call: Any) -> str:
    """Pauses, resumes, resizes or revokes a lease; returns what has been done."""
    if order not in ("pause", "resume", "resize", "revoke"):
        raise CallRefusedError(404, f"there is no order {order[:64]!r}")
    lease = needed(body, "lease")
    if order == "pause":
        paused = await leases.PauseLease(lease_pb2.PauseLeaseRequest(lease_id=lease), call)
        was = "was paused already" if paused.unchanged else "is paused"
        return f"{lease} {was}: its programs keep their memory and wait"
    if order == "resume":
        resumed = await leases.ResumeLease(lease_pb2.ResumeLeaseRequest(lease_id=lease), call)
        return f"{lease} was not paused" if resumed.unchanged else f"{lease} goes on"
    if order == "revoke":
        ended = await leases.RevokeLease(lease_pb2.RevokeLeaseRequest(lease_id=lease), call)
        return f"{lease} was revoked, and {counted(ended.ended_sessions, 'session')} with it"
    resized = await leases.ResizeLease(_resize_request(lease, body), call)
    return _resized(lease, resized)


def _resize_request(lease: str, body: Mapping[str, Any]) -> lease_pb2.ResizeLeaseRequest:
    policy, limit = policy_of(body, "policy"), share_of(body, "limit")
    kill = flag_of(body, "kill")
    if limit == 0:
        raise CallRefusedError(400, "limit 0 makes no sense: pause the lease to stop its work")
    request = lease_pb2.ResizeLeaseRequest(
        lease_id=lease,
        memory_bytes=bytes_of(body, "memory"),
        share_request_ppm=share_of(body, "share"),
        share_limit_ppm=limit,
        policy=None
        if policy is None
        else lease_pb2.SharePolicy.Value(f"SHARE_POLICY_{policy.name}"),
        priority=number_of(body, "priority", MAX_PRIORITY),
        weight=number_of(body, "weight", MAX_WEIGHT),
    )
    if len(request.ListFields()) == 1:
        raise CallRefusedError(
            400, "say what to change: memory, share, limit, policy, priority or weight"
        )
    request.kill = kill
    return request


def _resized(lease: str, answer: lease_pb2.ResizeLeaseResponse) -> str:
    quota, used = answer.lease.quota, answer.lease.used_memory_bytes
    said = (
        f"{lease} has {format_bytes(quota.memory_bytes)}, share "
        f"{format_share(quota.share_request_ppm)}, limit {format_share(quota.share_limit_ppm)}"
    )
    if answer.ended_sessions:
        said += f"; {counted(answer.ended_sessions, 'session')} ended"
    elif used > quota.memory_bytes:
        said += (
            f"; its programs hold {format_bytes(used)} and get no more memory until they are under "
            "the limit"
        )
    return said


async def node_order(node: NodeService, order: str, body: Mapping[str, Any], call: Any) -> str:
    """Drains the server, or has it take new leases again; returns what has been done."""
    if order == "undrain":
        undrained = await node.UndrainNode(node_pb2.UndrainNodeRequest(), call)
        was = " was not drained: it" if undrained.unchanged else ""
        return f"the server{was} takes new leases and sessions"
    seconds = seconds_of(body, "end_after_seconds", _MOST_SECONDS)
    drained = await node.DrainNode(node_pb2.DrainNodeRequest(end_after_seconds=seconds), call)
    server = "the server was drained already: it" if drained.unchanged else "the server"
    if seconds is None:
        return f"{server} takes nothing new; what runs goes on until it ends by itself"
    return f"{server} takes nothing new; what runs ends in {seconds:g} s at the latest"
