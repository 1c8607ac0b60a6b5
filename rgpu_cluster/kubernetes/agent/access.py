"""Decides who gets the credential of a claim. Pure.

The caller is the plugin of a client node. It proves by its ServiceAccount token which node it runs
on, and gets the credentials of claims that are reserved for pods of that node.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_cluster.kubernetes import names

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_cluster.kubernetes.agent.views import ClaimView
    from rgpu_common.v1 import credentials_pb2

_NODE = "authentication.kubernetes.io/node-name"
_MOST_NAMESPACE, _MOST_NAME, _MOST_UID = 63, 253, 64


class Why(Enum):
    """The kind of a refusal; the names are those of gRPC's status codes."""

    INVALID_ARGUMENT = "invalid"
    UNAUTHENTICATED = "stranger"
    PERMISSION_DENIED = "forbidden"
    NOT_FOUND = "unknown"
    FAILED_PRECONDITION = "early"
    RESOURCE_EXHAUSTED = "often"
    UNAVAILABLE = "away"


class Denial(Struct, frozen=True):
    why: Why
    sentence: str


class Caller(Struct, frozen=True):
    """Who has been proven to call. node: where its pod runs."""

    account: str
    node: str


class PodFacts(Struct, frozen=True):
    """A pod as the API server has it. node: "" before it is bound. over: it has ended."""

    uid: str
    node: str
    over: bool


def wrong(request: credentials_pb2.GetCredentialRequest) -> Denial | None:
    """Returns what no plugin would ask, else None."""
    parts = (
        ("namespace", request.namespace, _MOST_NAMESPACE),
        ("name", request.name, _MOST_NAME),
        ("uid", request.uid, _MOST_UID),
    )
    for name, text, most in parts:
        if not 0 < len(text) <= most or not text.isascii() or not text.isprintable():
            sentence = f"{name} of the claim has 1 to {most} printable characters"
            return Denial(Why.INVALID_ARGUMENT, sentence)
    return None


def caller_of(review: dict[str, Any], account: str) -> Caller | Denial:
    """Returns who has shown a token.

    review: the status of the TokenReview. account: NAMESPACE/NAME of the only ServiceAccount whose
    tokens are accepted.
    """
    if not review.get("authenticated") or names.AUDIENCE not in (review.get("audiences") or []):
        sentence = (
            f"the token is not valid for the audience {names.AUDIENCE}; show the token of a "
            "projected volume with this audience"
        )
        return Denial(Why.UNAUTHENTICATED, sentence)
    user = review.get("user") or {}
    wanted = "system:serviceaccount:" + account.replace("/", ":", 1)
    if user.get("username") != wanted:
        sentence = f"credentials are for the ServiceAccount {account} (--plugin-account)"
        return Denial(Why.PERMISSION_DENIED, sentence)
    nodes = (user.get("extra") or {}).get(_NODE) or []
    if len(nodes) != 1:
        sentence = "the token names no node; show the token of the plugin's own pod"
        return Denial(Why.PERMISSION_DENIED, sentence)
    return Caller(account, str(nodes[0]))


def claim_denial(
    view: ClaimView | None, request: credentials_pb2.GetCredentialRequest, leased: bool
) -> Denial | None:
    """Returns why there is no credential for a claim. view: the claim of this name, if any."""
    name = f"{request.namespace}/{request.name}"
    if view is None or view.uid != request.uid:
        return Denial(Why.NOT_FOUND, f"there is no claim {name} with the UID {request.uid}")
    if not view.shares:
        return Denial(Why.NOT_FOUND, f"the claim {name} has no card on this server")
    if not leased:
        return Denial(Why.FAILED_PRECONDITION, f"the claim {name} has no lease yet; ask again")
    return None


def pod_denial(view: ClaimView, pods: Iterable[PodFacts | None], caller: Caller) -> Denial | None:
    """Returns why this caller does not get the credential. pods: those of the claim."""
    mine = {pod.uid for pod in view.pods}
    for pod in pods:
        if pod is not None and pod.uid in mine and pod.node == caller.node and not pod.over:
            return None
    sentence = f"no pod on node {caller.node} uses the claim {view.namespace}/{view.name}"
    return Denial(Why.PERMISSION_DENIED, sentence)


class Paces:
    """How often each of many may call: `burst` times at once, then `rate` times a second."""

    def __init__(self, rate: float, burst: int, most: int = 4096) -> None:
        self._rate = rate
        self._burst = burst
        self._most = most
        # Name -> what it has left, and when that was so; the one that called first comes first.
        self._left: dict[str, tuple[float, float]] = {}

    def may(self, name: str, now: float) -> bool:
        """Counts a call; False: it is one too many."""
        left, then = self._left.pop(name, (float(self._burst), now))
        left = min(left + (now - then) * self._rate, self._burst)
        allowed = left >= 1
        self._left[name] = (left - 1 if allowed else left, now)
        while len(self._left) > self._most:
            del self._left[next(iter(self._left))]
        return allowed
