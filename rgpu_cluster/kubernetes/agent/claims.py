"""Reads and writes single claims and pods at the API server."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim, ResourceClaimStatus

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.agent.access import PodFacts
from rgpu_cluster.kubernetes.agent.conditions import is_said, status_with
from rgpu_cluster.kubernetes.agent.views import view_of
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.authority import with_authority
from rgpu_cluster.kubernetes.objects import Objects, model_of, read
from rgpu_cluster.kubernetes.writing import now
from rgpu_common.turns import TurnPlaces

if TYPE_CHECKING:
    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.agent.actions import Annotate, Revoke, Say
    from rgpu_cluster.kubernetes.agent.views import ClaimView

log = logging.getLogger("rgpu.kubernetes")

_FORBIDDEN, _NOT_FOUND, _CONFLICT, _INVALID = 403, 404, 409, 422
_TRIES = 3
_OVER = ("Succeeded", "Failed")
# So many pods are asked for at once; namespaces take turns. A claim may have 256 pods, and all
# calls share the connections to the API server.
_READS_AT_ONCE = 16


class Claims:
    """Each method raises one of `api.CALL_ERRORS` if the API server does not do it."""

    def __init__(self, client: AsyncClient, node: str) -> None:
        self._client = client
        self._node = node
        self._reads = TurnPlaces(_READS_AT_ONCE)

    async def look(self, action: Revoke) -> ClaimView | None:
        """Returns the claim of an action as the API server has it now; None: there is none."""
        if action.name:
            claim = await self.get(action.namespace, action.name)
            if claim is None or str(claim.metadata.uid) != action.uid:
                return None
            return view_of(claim, self._node)
        where = {"namespace": action.namespace}
        async for content in Objects(self._client, ResourceClaim, where).list():
            # Only this one is turned into a model, because others may be wrong.
            if content["metadata"].get("uid") == action.uid:
                return view_of(model_of(ResourceClaim, content), self._node)
        return None

    async def get(self, namespace: str, name: str) -> Any:
        """Returns a claim; None: there is none."""
        try:
            return await read(self._client, ResourceClaim, name, namespace)
        except CALL_ERRORS as error:
            if code_of(error) == _NOT_FOUND:
                return None
            raise

    async def say(self, action: Say) -> ClaimView | None:
        """Writes the conditions of a claim, if it still has the allocation that they are about.
        Returns the claim as it is then; None: it is gone.
        """
        for left in reversed(range(_TRIES)):
            claim = await self.get(action.namespace, action.name)
            if claim is None or str(claim.metadata.uid) != action.uid:
                return None
            view = view_of(claim, self._node)
            if view.key != action.key or is_said(view, action.condition):
                return view
            content = claim.to_dict()
            content["status"] = status_with(
                content["status"], view, self._node, action.condition, action.sentence, now()
            )
            wanted_status: Any = ResourceClaimStatus.from_dict(content)
            try:
                written = await self._client.replace(
                    wanted_status, action.name, namespace=action.namespace
                )
            except CALL_ERRORS as error:
                # Somebody has written the claim meanwhile.
                if code_of(error) != _CONFLICT or not left:
                    raise
                continue
            return view_of(written, self._node)
        raise AssertionError("every try has ended above")

    async def annotate(self, action: Annotate) -> None:
        """Writes the annotations of pods. A pod that is gone needs none."""
        said = with_authority(
            {
                names.SERVER: action.server,
                names.LEASE: action.lease,
                names.DEVICE: action.device,
            }
        )
        for pod in action.pods:
            # The UID has the API server refuse if another pod has the name now.
            patch = {"metadata": {"uid": pod.uid, "annotations": said}}
            try:
                await self._client.patch(Pod, pod.name, patch, namespace=action.namespace)
            except CALL_ERRORS as error:
                if code_of(error) in (_FORBIDDEN, _INVALID):
                    # A policy keeps what another part has said, and lets agents tell only pods for
                    # which the manager has not spoken. Other pods learn it from the node plugin.
                    log.info("%s is not told its server: %s", pod.name, sentence_of(error))
                elif code_of(error) not in (_NOT_FOUND, _CONFLICT):
                    raise

    async def pods(self, view: ClaimView, most: int) -> list[PodFacts | None]:
        """Returns the pods of a claim, at most so many of them."""
        found = [self._pod(view.namespace, pod.name) for pod in view.pods[:most]]
        return list(await asyncio.gather(*found))

    async def _pod(self, namespace: str, name: str) -> PodFacts | None:
        try:
            async with self._reads.place(namespace):
                pod: Any = await read(self._client, Pod, name, namespace)
        except CALL_ERRORS as error:
            if code_of(error) == _NOT_FOUND:
                return None
            raise
        phase = pod.status.phase if pod.status is not None else ""
        return PodFacts(str(pod.metadata.uid), pod.spec.nodeName or "", phase in _OVER)
