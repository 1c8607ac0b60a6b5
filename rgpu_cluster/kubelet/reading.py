"""Reads from Kubernetes' API server what the preparation of a claim needs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim, ResourceSlice

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.offers import offer_of
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.names import DRIVER
from rgpu_cluster.kubernetes.objects import content_of
from rgpu_common.turns import TurnPlaces

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Mapping

    from lightkube import AsyncClient

    from rgpu_cluster.kubelet.claims import ClaimName
    from rgpu_cluster.kubelet.offers import Offer

    Content = Mapping[str, Any]

_NOT_FOUND, _FORBIDDEN = 404, 403
# Pods that are asked for at once: a claim may be reserved for 256. Namespaces take turns.
_AT_ONCE = 16


class Cluster(Protocol):
    """What the preparation asks of the cluster. Each call raises PrepareError if it fails."""

    async def claim(self, claim: ClaimName) -> Content: ...

    async def pods(self, namespace: str, names: Iterable[str], node: str) -> list[Content]: ...

    async def offer(self, pool: str) -> Offer: ...


class ApiCluster:
    """The cluster behind an API server."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._places = TurnPlaces(_AT_ONCE)

    async def claim(self, claim: ClaimName) -> Content:
        """Returns a ResourceClaim."""
        asked = content_of(self._client, ResourceClaim, claim.name, namespace=claim.namespace)
        found: Content | None = await _answer(asked, f"read {claim}", "get on resourceclaims")
        if found is None:
            raise PrepareError(
                f"there is no {claim} any more: delete the pod, so that a new one gets a new claim"
            )
        return found

    async def pods(self, namespace: str, names: Iterable[str], node: str) -> list[Content]:
        """Returns those of the named pods that are bound to a node.

        They are asked for one by one, so that this plugin needs no right to list all pods.
        """

        async def pod(name: str) -> Content | None:
            async with self._places.place(namespace):
                asked = content_of(self._client, Pod, name, namespace=namespace)
                found: Content | None = await _answer(
                    asked, f"read pod {namespace}/{name}", "get on pods"
                )
                return found

        found = await asyncio.gather(*map(pod, names))
        return [one for one in found if one and (one.get("spec") or {}).get("nodeName") == node]

    async def offer(self, pool: str) -> Offer:
        """Returns what a GPU node says of itself. Its first slice has this name."""
        doing, rule = f"read the slices of GPU node {pool}", "get and list on resourceslices"
        first = await _answer(self._client.get(ResourceSlice, f"{pool}-rgpu"), doing, rule)
        found = offer_of([first.to_dict()] if first is not None else [], pool)
        if found is None:
            found = offer_of(await _answer(self._slices(), doing, rule) or [], pool)
        if found is None:
            raise PrepareError(
                f"GPU node {pool} offers no devices any more: see whether `rgpu agent-node` runs "
                "there, or delete the pod, so that the scheduler chooses another node"
            )
        return found

    async def _slices(self) -> list[Content]:
        rows = self._client.list(ResourceSlice, fields={"spec.driver": DRIVER})
        return [one.to_dict() async for one in rows]


async def _answer(asked: Awaitable[Any], doing: str, rule: str) -> Any:
    """Returns the answer of a call, None if there is no such object."""
    try:
        return await asked
    except CALL_ERRORS as error:
        code = code_of(error)
        if code == _NOT_FOUND:
            return None
        remedy = "; it is asked again"
        if code == _FORBIDDEN:
            remedy = f"; give the plugin's ServiceAccount the right {rule}"
        raise PrepareError(f"cannot {doing}: {sentence_of(error)}{remedy}") from None
