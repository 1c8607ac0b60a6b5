"""Turns what the core says into messages for nodes and clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_cluster.core.card import load_of
from rgpu_cluster.core.decision import Decision, excluded, why
from rgpu_cluster.core.filters import PASSING
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.request import Mode
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM, counted, format_bytes, format_share
from rgpu_common.v1 import agent_pb2, cluster_pb2, lease_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rgpu_cluster.core.actions import Grant, Resize
    from rgpu_cluster.core.card import Card, CardId, Holding, Load
    from rgpu_cluster.core.decision import Candidate, Refusal
    from rgpu_cluster.core.gone import GoneNode
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.pressure import Give
    from rgpu_cluster.core.request import Request

# In which time a program has to come after its cards were granted.
COME_SECONDS = 60.0
_REACH = {
    Mode.PASSTHROUGH: cluster_pb2.REACH_PASSTHROUGH,
    Mode.LOCAL: cluster_pb2.REACH_LOCAL,
    Mode.NEAR: cluster_pb2.REACH_NEAR,
    Mode.ANY: cluster_pb2.REACH_ANY,
}


def grant_order(action: Grant) -> agent_pb2.GrantOrder:
    """Returns the order for a daemon."""
    request = action.request
    quota = lease_pb2.Quota(
        memory_bytes=request.memory_bytes,
        memory_ppm=0 if request.memory_bytes else request.memory_ppm,
        share_request_ppm=request.share_ppm,
        share_limit_ppm=request.limit_ppm or 0,
        policy=lease_pb2.SharePolicy.Value(f"SHARE_POLICY_{_policy(request).name}"),
        priority=request.priority,
        weight=request.weight,
    )
    return agent_pb2.GrantOrder(
        request_id=request.id,
        attempt=action.attempt,
        tenant=request.tenant,
        ordinals=[card.ordinal for card in action.cards],
        quota=quota,
        whole=request.whole,
        neighbours=agent_pb2.Neighbours(
            affinity=request.labels.affinity,
            anti_affinity=request.labels.anti_affinity,
            exclusion=request.labels.exclusion,
        ),
        # A server of an earlier release knows no reservations; its lease waits as long.
        ttl_seconds=request.reserve_seconds or request.come_seconds or COME_SECONDS,
        reserve_seconds=request.reserve_seconds,
        cards=request.cards,
        least_ppm=request.least_ppm,
        least_bytes=request.least_bytes,
        yields_unused=yields_unused(request),
        first_place=action.first_place,
        kept=request.kept,
        name=request.name,
    )


def resize_order(action: Resize) -> agent_pb2.ResizeOrder:
    """Returns the order for a daemon."""
    return agent_pb2.ResizeOrder(
        request_id=action.id,
        attempt=action.attempt,
        ordinal=action.card.ordinal,
        number=action.number,
        share_ppm=action.share_ppm,
        memory_bytes=action.memory_bytes,
    )


def given(give: Give, tenant: str, sees: Callable[[str], bool]) -> str:
    """Returns what a lease gave for a request, in one sentence."""
    whose = give.lease if sees(tenant) else "another tenant's lease"
    if give.ends:
        return f"{whose} on {give.card} ends"
    size = f"{format_share(give.share_ppm)} and {format_bytes(give.memory_bytes)}"
    return f"{whose} on {give.card} shrinks to {size}"


def yields_unused(request: Request) -> bool:
    """Returns whether a lease gives the memory that its programs do not use. A reservation is for
    programs that come later.
    """
    best_effort = request.policy is SharePolicy.BEST_EFFORT
    return best_effort and request.least_bytes is None and not request.reserved


def _policy(request: Request) -> SharePolicy:
    if request.share_ppm and request.policy is SharePolicy.BEST_EFFORT:
        return SharePolicy.NONE
    return request.policy


def placed_message(decision: Decision, pool: Pool) -> cluster_pb2.PlacedAt:
    """Returns where a request is. An address is "" if its node is not there any more."""
    cards = decision.chosen.cards
    first, *others = [
        _placed_on(name, cards, pool) for name in dict.fromkeys(c.node for c in cards)
    ]
    return cluster_pb2.PlacedAt(
        node=first.node,
        address=first.address,
        ordinals=first.ordinals,
        reason=why(decision.chosen),
        tenant=decision.request.tenant,
        others=others,
    )


def _placed_on(name: str, cards: Iterable[CardId], pool: Pool) -> cluster_pb2.PlacedOn:
    node = pool.node(name)
    return cluster_pb2.PlacedOn(
        node=name,
        address=node.address if node is not None else "",
        ordinals=[card.ordinal for card in cards if card.node == name],
    )


# Explanations


def alternative(candidate: Candidate) -> cluster_pb2.Alternative:
    """Returns one possible place."""
    score = candidate.score
    return cluster_pb2.Alternative(
        cards=[str(card) for card in candidate.cards],
        reach=_REACH[candidate.mode],
        slowdown_ppm=candidate.slowdown_ppm,
        transport=candidate.transport,
        measured=candidate.measured,
        score=cluster_pb2.ScoreTerms(
            total=score.total,
            network=score.network,
            fragmentation=score.fragmentation,
            packing=score.packing,
            spreading=score.spreading,
            headroom=score.headroom,
            crowding=score.crowding,
            mode=score.mode,
            distance=score.distance,
            borrowing=score.borrowing,
        ),
        equal=candidate.equal,
    )


def explanation(decided: Decision | Refusal) -> cluster_pb2.ExplainResponse:
    """Returns the decision, without what has become of the request since."""
    message = cluster_pb2.ExplainResponse(
        request_id=decided.request.id,
        excluded=[
            cluster_pb2.ExcludedCards(reason=one.because, cards=one.cards, classes=one.classes)
            for one in excluded(decided.rejected)
        ],
    )
    if isinstance(decided, Decision):
        message.chosen.CopyFrom(alternative(decided.chosen))
        message.others.extend(map(alternative, decided.others))
        message.sentence = why(decided.chosen)
    else:
        message.sentence = in_short(decided) if decided.each else decided.remedy
    return message


def in_short(refusal: Refusal | None, names: Sequence[str] = ()) -> str:
    """Returns why a request waits, in one sentence. names: those of its alternatives."""
    if refusal is None:
        return "it has just come"
    if refusal.each:
        numbers = [f"alternative {number}" for number in range(1, len(refusal.each) + 1)]
        each = zip(names or numbers, refusal.each, strict=False)
        said = (f"{name}: {in_short(x) if x.possible else x.remedy}" for name, x in each)
        return "; ".join(said)
    reasons = excluded(refusal.rejected)
    if not reasons:
        return refusal.remedy
    # What waiting can change comes first.
    first = next((one for one in reasons if one.reason in PASSING), reasons[0])
    rest = sum(one.cards for one in reasons) - first.cards
    more = f", and {rest} for other reasons" if rest else ""
    return f"{counted(first.cards, 'card')} cannot be used, because each {first.because}{more}"


# The pool


def pool_nodes(
    pool: Pool,
    sees: Callable[[str], bool],
    connected: Callable[[str], bool],
    ends: Callable[[str], float | None],
) -> Iterable[cluster_pb2.PoolNode]:
    """Yields each node with its cards. sees: whether the caller may see a tenant's leases. ends: in
    how many seconds a lease ends whose end was announced.
    """
    for node in sorted(pool.nodes(), key=lambda node: node.name):
        found = _pool_node(node)
        found.free_bandwidth_bps = max(pool.free_bandwidth(node), 0)
        found.taints.extend(sorted(node.taints))
        found.connected = connected(node.name)
        for card in _cards(node):
            load, held = pool.load(card.id), pool.holdings(card.id)
            found.cards.append(_pool_card(card, load, held, sees, ends))
        yield found


def gone_nodes(
    gone: Iterable[GoneNode], sees: Callable[[str], bool], now_ns: int
) -> Iterable[cluster_pb2.PoolNode]:
    """Yields each node that has gone, with what it had. sees: as `pool_nodes` has it."""
    for one in sorted(gone, key=lambda one: one.node.name):
        found = _pool_node(one.node)
        found.silent_seconds = max(now_ns - one.seen_ns, 0) / SECOND
        for card in _cards(one.node):
            held = one.held[card.id]
            found.cards.append(_pool_card(card, load_of(list(held)), held, sees, lambda _: None))
        yield found


def _cards(node: Node) -> list[Card]:
    return sorted(node.cards, key=lambda card: card.id)


def _pool_node(node: Node) -> cluster_pb2.PoolNode:
    """Returns what a node is, without its cards."""
    return cluster_pb2.PoolNode(
        name=node.name,
        address=node.address,
        rack=node.rack,
        zone=node.zone,
        nic=node.nic,
        bandwidth_bps=node.bandwidth_bps,
        release=node.release,
    )


def _pool_card(
    card: Card,
    load: Load,
    held: Sequence[Holding],
    sees: Callable[[str], bool],
    ends: Callable[[str], float | None],
) -> cluster_pb2.PoolCard:
    mine = [one for one in held if sees(one.tenant)]
    return cluster_pb2.PoolCard(
        ordinal=card.id.ordinal,
        model=card.model,
        memory_bytes=card.memory_bytes,
        # A request to which leases give way is on the card already.
        used_ppm=min(load.used_ppm, PPM),
        used_bytes=min(load.used_bytes, card.memory_bytes),
        pool=card.pool,
        mig=card.mig,
        leases=[_pool_lease(one, ends(one.lease)) for one in mine],
        others=len(held) - len(mine),
    )


def _pool_lease(one: Holding, ends_seconds: float | None) -> cluster_pb2.PoolLease:
    return cluster_pb2.PoolLease(
        request_id=one.lease,
        tenant=one.tenant,
        share_ppm=one.share_ppm,
        memory_bytes=one.memory_bytes,
        whole=one.whole,
        wanted_ppm=one.elastic.wanted_ppm if one.elastic is not None else 0,
        wanted_bytes=one.elastic.wanted_bytes if one.elastic is not None else 0,
        ends_seconds=ends_seconds,
        name=one.name,
    )


def pool_paths(paths: Paths) -> Iterable[cluster_pb2.PoolPath]:
    """Yields the measured classes of paths."""
    for (client, server), figures in sorted(paths.measured().items()):
        yield cluster_pb2.PoolPath(
            client_rack=client.rack,
            client_nic=client.nic,
            server_rack=server.rack,
            server_nic=server.nic,
            round_trip_ns=figures.round_trip_ns,
            up_rate=figures.up_rate,
            down_rate=figures.down_rate,
            transport=figures.transport,
            age_seconds=figures.age_seconds,
            doubted=paths.doubted((client, server)),
        )
