"""Why a card cannot take a request. Each filter gives a reason, or None.

The filters of a kind and a site are asked once for all cards that share them; those of a state once
for each class.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from rgpu_cluster.core.classes import HEADROOM_STEPS
from rgpu_cluster.core.node import DRAINING
from rgpu_cluster.core.request import Mode
from rgpu_common.units import PPM

if TYPE_CHECKING:
    from rgpu_cluster.core.card import Card, Labels, Load
    from rgpu_cluster.core.classes import Kind, State
    from rgpu_cluster.core.node import Site
    from rgpu_cluster.core.request import Request


class Reason(Enum):
    """Why a class of cards is excluded. The value is the text that users read."""

    MODEL = "is of another model"
    POOL = "is in another pool"
    MIG = "is not of the MIG profile that was asked for"
    MEMORY_TOTAL = "has less memory in all than was asked for"
    DRAINED = "is on a node that takes no new leases, because its operator drains it"
    STALE = "is on a node that has refused or not answered, and has not reported since"
    TOO_FAR = "is farther away than the request allows"
    SLOWDOWN = "is predicted to slow the program down more than --max-slowdown allows"
    BANDWIDTH = "has too little network bandwidth left"
    TIME = "has too little guaranteed device time left"
    MEMORY = "has too little memory left"
    NOT_WHOLE = "is in use, and a whole card was asked for"
    TAKEN_WHOLE = "belongs to one lease alone"
    AFFINITY = "has leases, and none with the affinity that was asked for"
    ANTI_AFFINITY = "has a lease with the anti-affinity that was asked for"
    EXCLUSION = "has leases with another exclusion label"
    BARRED = "is on a server that does not allow it"
    FEW = "is on a node with too few free cards, and all have to be on one node"
    PER_NODE = "is on a node that has as many cards of this request or gang as it may"
    PER_RACK = "is in a rack that has as many cards of this request or gang as it may"
    PER_ZONE = "is in a zone that has as many cards of this request or gang as it may"


PASSING = frozenset(
    {
        Reason.DRAINED,
        Reason.STALE,
        Reason.BANDWIDTH,
        Reason.TIME,
        Reason.MEMORY,
        Reason.NOT_WHOLE,
        Reason.TAKEN_WHOLE,
        Reason.AFFINITY,
        Reason.ANTI_AFFINITY,
        Reason.EXCLUSION,
        Reason.FEW,
    }
)
"""Reasons that end when leases end, or when a node is itself again."""
OF_NODE = frozenset({Reason.DRAINED, Reason.STALE})
"""Reasons for which somebody looks at a node, so it is named."""


def of_kind(kind: Kind | Card, request: Request) -> Reason | None:
    """Returns why no card of this kind can take the request."""
    if request.model and kind.model != request.model:
        return Reason.MODEL
    if request.pool and kind.pool != request.pool:
        return Reason.POOL
    if kind.mig != request.mig:
        return Reason.MIG
    if kind.memory_bytes < request.memory_on(kind.memory_bytes):
        return Reason.MEMORY_TOTAL
    return None


def of_site(site: Site) -> Reason | None:
    """Returns why no card at this site takes new leases."""
    if DRAINING in site.taints:
        return Reason.DRAINED
    return Reason.STALE if site.taints else None


def of_mode(mode: Mode, slowdown_ppm: int, request: Request) -> Reason | None:
    """Returns why a card this far away cannot take the request."""
    if mode > request.farthest:
        return Reason.TOO_FAR
    limit = request.max_slowdown_ppm
    if limit is not None and mode >= Mode.NEAR and slowdown_ppm > limit:
        return Reason.SLOWDOWN
    return None


def of_state(state: State, kind: Kind | Card, request: Request, mode: Mode) -> Reason | None:
    """Returns why a card in this state has no room for the request."""
    load = state.load
    if load.whole:
        return Reason.TAKEN_WHOLE
    if request.whole and load.leases:
        return Reason.NOT_WHOLE
    if load.used_ppm + request.share_ppm > PPM:
        return Reason.TIME
    if load.used_bytes + request.memory_on(kind.memory_bytes) > kind.memory_bytes:
        return Reason.MEMORY
    if mode >= Mode.NEAR and _lacks_bandwidth(state, request):
        return Reason.BANDWIDTH
    return of_labels(load, request.labels) if load.leases else None


def of_labels(load: Load, labels: Labels) -> Reason | None:
    """Returns which label keeps a request off a card that has leases (KubeShare's rules)."""
    if load.exclusion != labels.exclusion:
        return Reason.EXCLUSION
    if labels.anti_affinity and labels.anti_affinity in load.anti_affinity:
        return Reason.ANTI_AFFINITY
    if labels.affinity and labels.affinity not in load.affinity:
        return Reason.AFFINITY
    return None


def _lacks_bandwidth(state: State, request: Request) -> bool:
    if not request.bandwidth_bps or not state.bandwidth_bps:
        return False
    return state.headroom * state.bandwidth_bps // HEADROOM_STEPS < request.bandwidth_bps
