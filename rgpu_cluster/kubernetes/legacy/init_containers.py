"""What a pod asks for, when some of its containers run before the others. Pure.

Kubernetes counts a pod's request for a resource as the larger of two numbers: what the containers
that run together ask for, and the most that an init container asks for while it runs, because init
containers run one after the other and end before the containers start. A sidecar (an init container
with `restartPolicy: Always`) starts in its turn and stays.
https://kubernetes.io/docs/concepts/workloads/pods/init-containers/#resource-sharing-within-containers

A claim is one lease, so an init container uses the claim of a container that starts after it has
ended. That claim then asks for the larger of both. Where several containers run together and an
init container asks for more than each of them, one of their claims grows, the one that grows least.
The pod then asks for more than by Kubernetes' rule, because the claims of a pod may be on different
cards and nodes, so two leases do not make a larger one. Where containers differ in memory only, it
is more by less than the largest init container, and no choice of claims asks for less.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rgpu_cluster.kubernetes.legacy.asked import Asked

_ALL_MEMORY = (0, 0)


class When(Enum):
    """When a container runs.

    BEFORE: an init container, which ends before the next one starts.
    FROM_START: a sidecar. It starts in its turn among the init containers, and stays.
    LAST: after all init containers.
    """

    BEFORE = "before"
    FROM_START = "from start"
    LAST = "last"


class Use(Struct, frozen=True):
    """What one container asks for, and when it runs."""

    asked: Asked
    when: When


def pod_request(uses: Sequence[Use]) -> list[Asked]:
    """Returns a description for each claim of the pod.

    uses: of its containers that ask for cards, in the order in which they start.
    """
    claims: list[Asked] = []
    # The last first: what starts after an init container is then known.
    for use in reversed(uses):
        free = claims if use.when is When.BEFORE else []
        best = min(
            (n for n, claim in enumerate(free) if _alike(claim, use.asked)),
            key=lambda n: _growth(claims[n], use.asked),
            default=None,
        )
        if best is None:
            claims.append(use.asked)
        else:
            claims[best] = _grown(claims[best], use.asked)
    return claims[::-1]


def _alike(claim: Asked, asked: Asked) -> bool:
    """Returns whether one claim can serve both, one after the other."""
    memory = {bool(one.memory_percent) for one in (claim, asked) if _memory(one) != _ALL_MEMORY}
    return len(memory) < 2 and _kind(claim) == _kind(asked)


def _kind(asked: Asked) -> tuple[object, ...]:
    return asked.whole, asked.labels, asked.priority, asked.model, asked.pool


def _memory(asked: Asked) -> tuple[int, int]:
    return asked.memory_bytes, asked.memory_percent


def _grown(claim: Asked, asked: Asked) -> Asked:
    """Returns the claim, large enough for an init container too."""
    core = max(claim.core, asked.core)
    limit = max(one.core if one.limit is None else one.limit for one in (claim, asked))
    memory = [_memory(one) for one in (claim, asked)]
    size, percent = _ALL_MEMORY if _ALL_MEMORY in memory else max(memory)
    return replace(
        claim,
        cards=max(claim.cards, asked.cards),
        core=core,
        limit=None if limit == core else limit,
        memory_bytes=size,
        memory_percent=percent,
        before=(asked.container, *claim.before),
    )


def _growth(claim: Asked, asked: Asked) -> tuple[float, ...]:
    """Returns by how much the claim would have to grow: cards, memory, core."""
    grown = _grown(claim, asked)
    memory = [
        float("inf") if _memory(one) == _ALL_MEMORY and not one.whole else max(_memory(one))
        for one in (grown, claim)
    ]
    more = 0.0 if memory[0] == memory[1] else memory[0] - memory[1]
    return grown.cards - claim.cards, more, grown.core - claim.core
