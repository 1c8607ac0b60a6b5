"""Turns what a manager tells its clients into rows of the page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_common.v1 import cluster_pb2

if TYPE_CHECKING:
    from rgpu_cluster.manager.uses import CardUse

# Kinds of events that tell of something that was refused, or that went wrong.
_REFUSALS = frozenset({"cut", "denied", "lost", "refused", "taken_back"})
_REACH = "REACH_"


def node_row(node: cluster_pb2.PoolNode) -> dict[str, Any]:
    """A node of the cluster."""
    return {
        "address": node.address,
        "rack": node.rack,
        "zone": node.zone,
        "nic": node.nic,
        "bandwidth_bps": node.bandwidth_bps,
        "free_bandwidth_bps": node.free_bandwidth_bps,
        "taints": list(node.taints),
        "connected": node.connected,
        "cards": len(node.cards),
        "silent_since": 0,
    }


def gone_row(node: cluster_pb2.PoolNode, at: float) -> dict[str, Any]:
    """A node that has gone. silent_since: when it was heard of last."""
    return {**node_row(node), "silent_since": round(at - node.silent_seconds)}


def card_row(node: str, card: cluster_pb2.PoolCard, use: CardUse, at: float) -> dict[str, Any]:
    """A card, and the leases on it that the caller may see. use: what programs use of it."""
    return {
        "node": node,
        "ordinal": card.ordinal,
        "model": card.model,
        "mig": card.mig,
        "pool": card.pool,
        "memory_bytes": card.memory_bytes,
        "leased_ppm": card.used_ppm,
        "leased_bytes": card.used_bytes,
        "used_ppm": use.used_ppm,
        "used_bytes": use.used_bytes,
        "holders": [_holder(lease, at) for lease in card.leases],
        "others": card.others,
    }


def _holder(lease: cluster_pb2.PoolLease, at: float) -> dict[str, Any]:
    return {
        "request": lease.request_id,
        "name": lease.name,
        "tenant": lease.tenant,
        "share_ppm": lease.share_ppm,
        "memory_bytes": lease.memory_bytes,
        "whole": lease.whole,
        "wanted_ppm": lease.wanted_ppm,
        "wanted_bytes": lease.wanted_bytes,
        "ends_at": round(at + lease.ends_seconds) if lease.HasField("ends_seconds") else 0,
    }


def waiting_row(waiting: cluster_pb2.PoolWaiting, at: float) -> dict[str, Any]:
    """A request in line."""
    return {
        "tenant": waiting.tenant,
        "name": waiting.name,
        "asked": waiting.asked,
        "since": round(at - waiting.waited_seconds),
        "sentence": waiting.sentence,
    }


def reservation_row(one: cluster_pb2.PoolReservation, at: float) -> dict[str, Any]:
    """The part of a reservation that is on one node."""
    return {
        "tenant": one.tenant,
        "node": one.node,
        "ordinals": list(one.ordinals),
        "share_ppm": one.share_ppm,
        "memory_bytes": one.memory_bytes,
        "whole": one.whole,
        "ends_at": round(at + one.left_seconds),
        "connected": one.connected,
    }


def path_row(path: cluster_pb2.PoolPath) -> dict[str, Any]:
    """A class of paths that was measured."""
    return {
        "client": _place(path.client_rack, path.client_nic),
        "server": _place(path.server_rack, path.server_nic),
        "transport": f"{path.transport} (doubted)" if path.doubted else path.transport,
        "round_trip_ns": path.round_trip_ns,
        "up_rate": path.up_rate,
        "down_rate": path.down_rate,
    }


def _place(rack: str, nic: str) -> str:
    return " ".join(filter(None, (rack and f"rack {rack}", nic))) or "any rack"


def event_row(event: cluster_pb2.ClusterEvent) -> dict[str, Any]:
    """Something that has happened."""
    return {
        "at": round(event.at, 1),
        "event": event.kind,
        "refusal": event.kind in _REFUSALS,
        "node": event.node,
        "request": event.request_id,
        "name": event.name,
        "sentence": event.sentence,
    }


def explanation_row(answer: cluster_pb2.ExplainResponse, at: float) -> dict[str, Any]:
    """How a request was decided."""
    decided = answer.asked != ""
    return {
        "request": answer.request_id,
        "asked": answer.asked,
        "state": answer.state,
        "sentence": answer.sentence,
        "decided_at": round(at - answer.age_seconds) if decided else 0,
        "attempt": answer.attempt,
        "chosen": _alternative(answer.chosen) if answer.HasField("chosen") else None,
        "others": [_alternative(one) for one in answer.others],
        "excluded": [
            {"reason": one.reason, "cards": one.cards, "classes": one.classes}
            for one in answer.excluded
        ],
        "gives": list(answer.gives),
    }


def _alternative(place: cluster_pb2.Alternative) -> dict[str, Any]:
    score = {field.name: value for field, value in place.score.ListFields()}
    return {
        "cards": list(place.cards),
        "reach": cluster_pb2.Reach.Name(place.reach).removeprefix(_REACH).lower(),
        "slowdown_ppm": place.slowdown_ppm,
        "transport": place.transport,
        "measured": place.measured,
        "equal": place.equal,
        "score": {"total": place.score.total, **score},
    }
