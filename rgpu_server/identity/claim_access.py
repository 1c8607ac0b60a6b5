"""Credentials of Kubernetes claims and pods. Each opens sessions in the leases of its claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common import claim_tokens
from rgpu_common.errors import UsageError
from rgpu_server.identity.access_tokens import check_tenant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rgpu_server.identity.pod_tokens import PodTokens

Found = tuple[str, "frozenset[str] | None"]
_NOBODY: Found = ("", None)


class ClaimAccess:
    """Knows which leases a credential is for.

    key: that of this node for claim tokens; None: it has none. pods: what reads the tokens of pods;
    None: such tokens are not accepted.
    """

    def __init__(self, key: bytes | None, pods: PodTokens | None = None) -> None:
        self._key = key
        self._pods = pods
        # Request -> the UIDs of the pods that may use its leases.
        self._allowed: dict[str, frozenset[str]] = {}

    def allow(self, request: str, pods: Iterable[str]) -> None:
        """Notes which pods may use the leases of a request, instead of what was noted before."""
        self._allowed[request] = frozenset(pods)

    def forget(self, request: str) -> None:
        """Notes that the request has no lease here."""
        self._allowed.pop(request, None)

    def look(self, token: str, now: float) -> Found:
        """Returns the tenant that a token proves, and the requests that it is for; "" if it proves
        nothing. now: seconds since 1970.
        """
        if claim_tokens.looks_like(token):
            claim = claim_tokens.read(self._key, token, now) if self._key is not None else None
            return _NOBODY if claim is None else _checked(claim.tenant, {claim.claim})
        pod = self._pods.read(token, now) if self._pods is not None else None
        if pod is None:
            return _NOBODY
        # The request of a pod without a claim, of the scheduler extender, has the pod's UID.
        allowed = {r for r, pods in self._allowed.items() if pod.uid in pods}
        return _checked(pod.namespace, {*allowed, pod.uid})


def _checked(tenant: str, requests: Iterable[str]) -> Found:
    try:
        check_tenant(tenant)
    except UsageError:
        return _NOBODY
    return tenant, frozenset(requests)
