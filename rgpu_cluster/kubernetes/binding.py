"""The scheduler extender's server side: it judges nodes, and binds pods that have their leases."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Protocol

from lightkube.models.core_v1 import ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Node, Pod, PodBinding
from lightkube.types import PatchType
from msgspec import DecodeError

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.extender import (
    Extending,
    Judge,
    asked_by,
    binding_of,
    client_of,
    filtered,
    prioritized,
    question_of,
    refused,
    request_on,
)
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.names import GROUP
from rgpu_cluster.kubernetes.views import needed_of_pod

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from lightkube import AsyncClient

    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.kubernetes.extender import Binding

log = logging.getLogger("rgpu.kubernetes.extender")

# A pod that was bound with a lease has this label.
LABEL, BOUND = f"{GROUP}/extender", "bound"
ALL = "*"
_ENDED = ("Succeeded", "Failed")


class Cluster(Protocol):
    """The live pool, and leases of it."""

    @property
    def pool(self) -> Pool: ...

    @property
    def paths(self) -> Paths: ...

    async def grant(self, request: Request) -> Mapping[str, str]:
        """Returns what the pod's programs are told, as annotations, once all daemons have granted.

        The same request again gets the same answer.

        Raises:
            RequestError: there is no room now, or no daemon grants it in time.
        """

    def release(self, request: str) -> None:
        """Ends the leases of a request."""


class Extender:
    """`routes` are for `web.Server`."""

    def __init__(
        self, client: AsyncClient, cluster: Cluster, options: Extending | None = None
    ) -> None:
        self._client: Any = client
        self._cluster = cluster
        self._options = options or Extending()
        self._pods: Informer[Any] = Informer(
            client, Pod, namespace=ALL, labels={LABEL: BOUND}, on_change=self._pod_changed,
            needed=needed_of_pod,
        )  # fmt: skip

    async def run(self) -> None:
        """Ends the leases of pods that have ended or gone, until it is cancelled."""
        await self._pods.run()

    def _pod_changed(self, before: Any, after: Any) -> None:
        pod = after if after is not None else before
        phase = pod.status.phase if pod.status is not None else ""
        if after is None or phase in _ENDED:
            self._cluster.release(pod.metadata.uid)

    def routes(self) -> dict[str, Callable[[Any], Awaitable[Any]]]:
        """Returns the handlers by path."""
        return {"/filter": self.filter, "/prioritize": self.prioritize, "/bind": self.bind}

    async def filter(self, message: Any) -> Any:
        """Answers ExtenderArgs with the nodes on which the pod may run."""
        question = question_of(message)
        try:
            judge = Judge(self._cluster.pool, self._cluster.paths, question, self._options)
        except RequestError as error:
            return refused(str(error))
        return filtered(judge, question)

    async def prioritize(self, message: Any) -> Any:
        """Answers ExtenderArgs with a score for each node."""
        question = question_of(message)
        judge = Judge(self._cluster.pool, self._cluster.paths, question, self._options)
        return prioritized(judge, question)

    async def bind(self, message: Any) -> Any:
        """Binds a pod when its leases are there; an error says why it could not."""
        try:
            await self._bind(binding_of(message))
        except RequestError as error:
            return {"Error": f"rgpu: {error}"}
        except CALL_ERRORS as error:
            return {"Error": f"rgpu: {sentence_of(error)}"}
        return {"Error": ""}

    async def _bind(self, binding: Binding) -> None:
        pod = await self._client.get(Pod, binding.pod, namespace=binding.namespace)
        if pod.metadata.uid != binding.uid or pod.metadata.deletionTimestamp is not None:
            raise RequestError(f"pod {binding.pod} was replaced or deleted")
        if pod.spec.nodeName:
            # The scheduler did not hear the answer to its first question.
            if pod.spec.nodeName != binding.node:
                raise RequestError(f"pod {binding.pod} is on node {pod.spec.nodeName}")
            return
        asked = asked_by(pod.to_dict(), self._options.units)
        if asked is None:
            await self._write(binding, {})
            return
        client = client_of(self._cluster.pool, binding.node, await self._labels(binding.node))
        request = request_on(asked, pod.to_dict(), client, self._options.farthest)
        try:
            told = await self._cluster.grant(request)
        except (RequestError, asyncio.CancelledError):
            self._cluster.release(request.id)
            raise
        try:
            await self._write(binding, told)
        except CALL_ERRORS as error:
            # Without an answer the pod may be bound, and then it needs its lease.
            if code_of(error):
                self._cluster.release(request.id)
            raise
        log.info("pod %s/%s runs on %s", binding.namespace, binding.pod, binding.node)

    async def _labels(self, name: str) -> Mapping[str, str]:
        if self._cluster.pool.node(name) is not None:
            return {}
        node = await self._client.get(Node, name)
        return node.metadata.labels or {}

    async def _write(self, binding: Binding, told: Mapping[str, str]) -> None:
        """Tells the pod its server, then binds it: its variables are read when it starts."""
        if told:
            named = {"annotations": dict(told), "labels": {LABEL: BOUND}, "uid": binding.uid}
            change = {"metadata": named}
            await self._client.patch(
                Pod, binding.pod, change, namespace=binding.namespace, patch_type=PatchType.MERGE
            )
        made = PodBinding(
            metadata=ObjectMeta(name=binding.pod, namespace=binding.namespace, uid=binding.uid),
            target=ObjectReference(apiVersion="v1", kind="Node", name=binding.node),
        )
        # A Binding is answered with a Status, which lightkube takes for a Binding without a target.
        with contextlib.suppress(DecodeError):
            await self._client.create(made, binding.pod, namespace=binding.namespace)
