"""Makes the order for the lease of a claim from its allocation. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.parameters import Parameters, parameters_of
from rgpu_cluster.kubernetes.slices import CORES
from rgpu_common.clusters import MAX_NAME
from rgpu_common.sharing import SharePolicy
from rgpu_common.units import PPM
from rgpu_common.v1 import agent_pb2, lease_pb2

if TYPE_CHECKING:
    from rgpu_cluster.kubernetes.agent.views import ClaimView, Share

# A lease that was granted and is not kept alive ends after so long.
GRANT_SECONDS = 60.0
_POLICIES = {
    SharePolicy.NONE: lease_pb2.SHARE_POLICY_NONE,
    SharePolicy.FIXED: lease_pb2.SHARE_POLICY_FIXED,
    SharePolicy.BURST: lease_pb2.SHARE_POLICY_BURST,
    SharePolicy.BEST_EFFORT: lease_pb2.SHARE_POLICY_BEST_EFFORT,
}


def order_of(view: ClaimView, attempt: int) -> agent_pb2.GrantOrder:
    """Returns the order for the cards that a claim has on this node.

    Raises:
        RequestError: no order says what the claim asks; the sentence says what to write.
    """
    if view.apart:
        raise RequestError(
            "cards of another node stand between the claim's cards on this node; ask for them in "
            "one request with `count`"
        )
    sizes = {_size(share) for share in view.shares}
    if len(sizes) > 1:
        raise RequestError(
            "the claim asks for cards of different sizes on one node; make a claim for each size"
        )
    asked = parameters_of(*_layers(view))
    ((share_ppm, memory_bytes),) = sizes
    return agent_pb2.GrantOrder(
        request_id=view.uid,
        attempt=attempt,
        tenant=view.namespace,
        ordinals=[share.ordinal for share in view.shares],
        quota=_quota(share_ppm, memory_bytes, asked),
        whole=asked.whole,
        neighbours=agent_pb2.Neighbours(
            affinity=asked.labels.affinity,
            anti_affinity=asked.labels.anti_affinity,
            exclusion=asked.labels.exclusion,
        ),
        ttl_seconds=GRANT_SECONDS,
        cards=view.cards,
        first_place=view.first,
        least_ppm=asked.least_ppm,
        least_bytes=asked.least_bytes,
        kept=True,
        name=view.name[:MAX_NAME],
    )


def _quota(share_ppm: int, memory_bytes: int, asked: Parameters) -> lease_pb2.Quota:
    """As the manager's order has it for the same parameters."""
    policy = asked.policy or SharePolicy.NONE
    return lease_pb2.Quota(
        memory_bytes=memory_bytes,
        memory_ppm=0 if memory_bytes else PPM,
        # The best effort guarantees nothing, whatever `core` counts.
        share_request_ppm=0 if policy is SharePolicy.BEST_EFFORT else share_ppm,
        share_limit_ppm=asked.limit_of(share_ppm),
        policy=_POLICIES[policy],
        priority=asked.priority,
        weight=asked.weight,
    )


def _size(share: Share) -> tuple[int, int]:
    """Returns share in ppm of the card and memory in bytes, 0 for all of it."""
    core = CORES if share.core < 0 else min(share.core, CORES)
    return core * PPM // CORES, max(share.memory_bytes, 0)


def _layers(view: ClaimView) -> list[dict[str, object]]:
    """Returns the parameters that are for this node's requests, the class's before the claim's."""
    asked = {share.request for share in view.shares}
    asked |= {request.partition("/")[0] for request in asked}
    return [said for requests, said in view.parameters if not requests or asked & set(requests)]
