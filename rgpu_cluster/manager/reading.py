"""Turns messages of nodes and clients into the core's words. Everything in them is checked here.

A message that breaks a rule raises PlacementError with a sentence for its sender.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_cluster.core.card import Card, CardId, Elastic, Holding, Labels
from rgpu_cluster.core.errors import PoolError, RequestError
from rgpu_cluster.core.limits import MOST_COUNTED
from rgpu_cluster.core.node import DRAINING, MAX_CARDS_PER_NODE, Node
from rgpu_cluster.core.paths import Figures
from rgpu_cluster.core.request import Client, Mode, Profile, Request
from rgpu_common.clusters import MAX_NAME, MAX_REQUEST_CARDS, is_node_name, is_request_id
from rgpu_common.endpoints import parse_endpoint
from rgpu_common.errors import EndpointError, UsageError
from rgpu_common.sharing import MAX_PRIORITY, MAX_WEIGHT, SharePolicy
from rgpu_common.texts import one_line
from rgpu_common.units import MAX_BYTES, PPM, format_share
from rgpu_common.v1 import cluster_pb2, lease_pb2, network_pb2
from rgpu_server.identity.access_tokens import check_tenant
from rgpu_server.service.messages import policy_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_common.v1 import agent_pb2

SERVER_BYTES, HOST_BYTES = 16, 32
# What a lease gets of a card's memory if the request does not say.
DEFAULT_MEMORY_PPM = PPM // 4
_MOST_TEXT = 128
_MOST_TENANT = 256
_MOST_ADDRESS = 300
_MOST_LOCATION = 16
_MOST_LEASES = 64 * MAX_CARDS_PER_NODE
_MOST_RATE = 1 << 50
_MOST_GANG = 1024
# A manager may have counted on from MOST_COUNTED, but not so far.
_MOST_COUNTED = 2 * MOST_COUNTED
_REACH = {
    cluster_pb2.REACH_UNSPECIFIED: Mode.ANY,
    cluster_pb2.REACH_PASSTHROUGH: Mode.PASSTHROUGH,
    cluster_pb2.REACH_LOCAL: Mode.LOCAL,
    cluster_pb2.REACH_NEAR: Mode.NEAR,
    cluster_pb2.REACH_ANY: Mode.ANY,
}


# Nodes


def node_of(report: agent_pb2.NodeReport, generation: int) -> Node:
    """Returns the node of a report. generation: what it has for the core."""
    nic, bandwidth = nic_of(report.devices)
    return Node(
        name=node_name(report.name),
        generation=generation,
        cards=tuple(_card(report.name, card) for card in report.cards[: MAX_CARDS_PER_NODE + 1]),
        address=_address(report.address),
        rack=_optional_name("rack", report.rack),
        zone=_optional_name("zone", report.zone),
        nic=nic,
        bandwidth_bps=bandwidth,
        taints=frozenset({DRAINING} if report.draining else ()),
        release=one_line(report.release, _MOST_TEXT),
    )


def node_name(text: str) -> str:
    """Returns a node's name; PoolError if it is none."""
    if not is_node_name(text):
        raise PoolError(f"{text[:_MOST_TEXT]!r} cannot name a node; set --node-name on its server")
    return text


def held_of(report: agent_pb2.NodeReport) -> dict[CardId, tuple[Holding, ...]]:
    """Returns the leases of a report, by card."""
    if len(report.leases) > _MOST_LEASES:
        raise PoolError(f"node {report.name} reported more than {_MOST_LEASES} leases")
    cards = {card.ordinal for card in report.cards}
    held: dict[CardId, list[Holding]] = {}
    seen = set()
    for lease in report.leases:
        holding = _holding(report.name, lease)
        card = CardId(report.name, lease.ordinal)
        if lease.ordinal not in cards or (card, holding.lease) in seen:
            raise PoolError(f"node {report.name} reported a lease on a card twice, or on no card")
        seen.add((card, holding.lease))
        held.setdefault(card, []).append(holding)
    return {card: tuple(holdings) for card, holdings in held.items()}


def _holding(node: str, lease: agent_pb2.HeldLease) -> Holding:
    wrong = (
        lease.share_ppm > PPM
        or lease.memory_bytes > MAX_BYTES
        or not lease.lease_id
        or len(lease.lease_id) > _MOST_TEXT
        or len(lease.tenant) > _MOST_TENANT
        or not (lease.lease_id.isprintable() and lease.tenant.isprintable())
        or (lease.request_id and not is_request_id(lease.request_id))
        or (lease.reserved and not lease.request_id)
        or lease.cards > MAX_REQUEST_CARDS
        or max(lease.attempt, lease.number) > _MOST_COUNTED
    )
    if wrong:
        raise PoolError(f"node {node} reported a lease that no server of this release has")
    return Holding(
        # A lease that the manager did not ask for has a name that no request can have.
        lease=lease.request_id or f"{node}/{lease.lease_id}",
        tenant=lease.tenant,
        share_ppm=PPM if lease.whole else lease.share_ppm,
        memory_bytes=lease.memory_bytes,
        labels=_labels(lease.neighbours),
        whole=lease.whole,
        attempt=lease.attempt if lease.request_id else 0,
        reserved=lease.reserved,
        elastic=_elastic(node, lease),
        priority=min(lease.priority, MAX_PRIORITY),
        since=lease.since,
        order=lease.number,
        name=one_line(lease.name, MAX_NAME),
    )


def _elastic(node: str, lease: agent_pb2.HeldLease) -> Elastic | None:
    if not lease.request_id or lease.whole or not lease.HasField("elastic"):
        return None
    one = lease.elastic
    if one.wanted_ppm > PPM or max(one.wanted_bytes, one.least_bytes) > MAX_BYTES:
        raise PoolError(f"node {node} reported a lease that wants more than a card has")
    return Elastic(one.least_ppm, one.least_bytes, one.wanted_ppm, one.wanted_bytes)


def _card(node: str, card: agent_pb2.CardReport) -> Card:
    location = tuple(card.location)
    texts = (card.model, card.pool, card.mig, card.uuid, *location)
    if any(len(text) > _MOST_TEXT or not text.isprintable() for text in texts):
        raise PoolError(f"node {node} reported a card with a text that is too long")
    if len(location) > _MOST_LOCATION or card.memory_bytes > MAX_BYTES or card.part_ppm > PPM:
        raise PoolError(f"node {node} reported a card that cannot be")
    return Card(
        id=CardId(node, card.ordinal),
        model=card.model,
        memory_bytes=card.memory_bytes,
        pool=card.pool,
        location=location,
        mig=card.mig,
        part_ppm=card.part_ppm or PPM,
    )


def nic_of(devices: Iterable[network_pb2.NetDevice]) -> tuple[str, int]:
    """Returns the class of a node's fastest network interface ("100G-rdma") and its bits a second;
    "" and 0 if no interface says how fast it is.
    """
    best, rdma = 0, False
    for device in list(devices)[:64]:
        ports = [port.speed_mbps for port in device.rdma_ports if port.active]
        speed = max([device.speed_mbps, *ports])
        if device.up and speed > best:
            best, rdma = min(speed, 10_000_000), bool(ports)
    if not best:
        return "", 0
    name = f"{best // 1000}G" if best >= 1000 else f"{best}M"
    return name + ("-rdma" if rdma else ""), best * 1_000_000


def figures_of(path: agent_pb2.PathReport) -> Figures:
    """Returns what a node measured; PoolError for figures that no network has."""
    numbers = (path.round_trip_ns, path.jitter_ns, path.up_rate, path.down_rate, path.message_rate)
    if not path.round_trip_ns or any(number > _MOST_RATE for number in numbers):
        raise PoolError("a node measured a path that cannot be")
    return Figures(*numbers, transport=one_line(path.transport, 16) or "tcp")


# Requests


def request_of(message: cluster_pb2.SubmitRequest, tenant: str, node: str, rack: str) -> Request:
    """Returns the request of a client. node: where its program runs, "" if on none of the pool."""
    _check(message, tenant)
    quota, whole = message.quota, message.whole
    return Request(
        id=message.request_id,
        tenant=tenant,
        share_ppm=PPM if whole else quota.share_request_ppm,
        memory_bytes=quota.memory_bytes if not whole else 0,
        memory_ppm=_memory_ppm(message),
        cards=message.cards or 1,
        limit_ppm=quota.share_limit_ppm or None,
        policy=policy_of(quota.policy) or SharePolicy.NONE,
        whole=whole,
        model=message.model,
        pool=message.pool,
        mig=message.mig,
        client=Client(node, rack),
        farthest=_reach(message),
        max_slowdown_ppm=(
            message.max_slowdown_ppm if message.HasField("max_slowdown_ppm") else None
        ),
        profile=_profile(message),
        bandwidth_bps=message.bandwidth_bps,
        labels=_labels(message.neighbours),
        max_per_node=message.max_per_node,
        max_per_rack=message.max_per_rack,
        max_per_zone=message.max_per_zone,
        one_node=message.one_node and message.cards > 1,
        least_ppm=message.least_ppm if message.HasField("least_ppm") else None,
        least_bytes=message.least_bytes if message.HasField("least_bytes") else None,
        priority=quota.priority,
        weight=quota.weight if quota.HasField("weight") else 1,
        reserve_seconds=message.reserve_seconds,
        name=message.name,
    )


def _profile(message: cluster_pb2.SubmitRequest) -> Profile:
    if not message.HasField("profile"):
        return Profile()
    profile = message.profile
    return Profile(profile.calls, profile.syncs, profile.up_bytes, profile.down_bytes)


def _memory_ppm(message: cluster_pb2.SubmitRequest) -> int:
    if message.whole:
        return PPM
    if message.quota.memory_bytes:
        return 0
    return message.quota.memory_ppm or DEFAULT_MEMORY_PPM


def _reach(message: cluster_pb2.SubmitRequest) -> Mode:
    try:
        return _REACH[message.farthest]
    except KeyError:
        raise RequestError("this manager does not know how far away a card may be") from None


def _check(message: cluster_pb2.SubmitRequest, tenant: str) -> None:
    """Refuses what the core would take for a value of its own."""
    quota, profile = message.quota, message.profile
    if not is_request_id(message.request_id):
        raise RequestError("a request's id is 16 to 64 letters, digits, dots and dashes")
    texts = (message.model, message.pool, message.mig, message.gang)
    if any(len(text) > _MOST_TEXT or not text.isprintable() for text in texts):
        raise RequestError(
            f"a model, a pool, a MIG profile and a gang have at most {_MOST_TEXT} printable "
            "characters"
        )
    if len(message.name) > MAX_NAME or not message.name.isprintable():
        raise RequestError(f"a name has at most {MAX_NAME} printable characters")
    try:
        check_tenant(tenant)
    except UsageError as error:
        raise RequestError(str(error)) from None
    if quota.memory_bytes > MAX_BYTES or message.bandwidth_bps > _MOST_RATE:
        raise RequestError("no card has so much memory, and no network so much bandwidth")
    weight = quota.weight if quota.HasField("weight") else 1
    if quota.priority > MAX_PRIORITY or not 1 <= weight <= MAX_WEIGHT:
        raise RequestError(f"a priority is 0 to {MAX_PRIORITY}, and a weight is 1 to {MAX_WEIGHT}")
    if quota.policy == lease_pb2.SHARE_POLICY_BEST_EFFORT and quota.share_request_ppm:
        raise RequestError(
            "the policy best-effort guarantees nothing and the share is "
            f"{format_share(quota.share_request_ppm)}; leave one of them out"
        )
    if max(profile.up_bytes, profile.down_bytes) > _MOST_RATE:
        raise RequestError("no program moves so many bytes a second")
    if message.gang and not 1 <= message.gang_size <= _MOST_GANG:
        raise RequestError(f"a gang has 1 to {_MOST_GANG} requests, not {message.gang_size}")


def _labels(said: agent_pb2.Neighbours) -> Labels:
    labels = Labels(said.affinity, said.anti_affinity, said.exclusion)
    words = labels.affinity, labels.anti_affinity, labels.exclusion
    if not all(map(str.isprintable, words)):
        raise RequestError("a label has printable characters only")
    if max(map(len, words)) > _MOST_TEXT:
        raise RequestError("a label has at most 63 characters")
    return labels


def _optional_name(what: str, text: str) -> str:
    if text and not is_node_name(text):
        raise PoolError(f"{text[:_MOST_TEXT]!r} cannot name a {what}")
    return text


def _address(text: str) -> str:
    try:
        if len(text) > _MOST_ADDRESS:
            raise EndpointError(f"an address has at most {_MOST_ADDRESS} characters")
        parse_endpoint(text)
    except EndpointError as error:
        raise PoolError(f"a node reported its address wrongly: {error}") from None
    return text
