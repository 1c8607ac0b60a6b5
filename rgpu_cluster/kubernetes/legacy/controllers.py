"""Keeps pods and claims for the objects of KubeShare and Elastic GPU: `rgpu legacy-controllers`.

What is to be there follows from the objects alone, so each is looked at again after each change and
now and then, and after a failure. Names are fixed, so a second controller does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from lightkube import codecs
from lightkube.generic_resource import create_global_resource, create_namespaced_resource
from lightkube.resources.apiextensions_v1 import CustomResourceDefinition
from lightkube.resources.core_v1 import Pod
from lightkube.resources.resource_v1 import ResourceClaim
from lightkube.types import PatchType

from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.admission import template_of
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_cluster.kubernetes.legacy import elastic, sharepods
from rgpu_cluster.kubernetes.legacy.again import Again, Key
from rgpu_cluster.kubernetes.legacy.owning import OURS, made_for, may_serve
from rgpu_common.errors import ConfigError
from rgpu_common.tasks import end
from rgpu_common.turns import TurnQueue

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from lightkube import AsyncClient

log = logging.getLogger("rgpu.kubernetes.legacy")

ALL = "*"
_ALL_SECONDS = 60.0
_CONFLICT, _NOT_FOUND = 409, 404
_MANAGER = "rgpu-legacy"
_LABELS = {OURS: "true"}

SharePod: Any = create_namespaced_resource("kubeshare.nthu", "v1", "SharePod", "sharepods")
Claim: Any = create_namespaced_resource(
    "elasticgpu.io", "v1alpha1", "ElasticGPUClaim", "elasticgpuclaims"
)
Class: Any = create_global_resource(
    "elasticgpu.io", "v1alpha1", "ElasticGPUClass", "elasticgpuclasses"
)
Gpu: Any = create_global_resource("elasticgpu.io", "v1alpha1", "ElasticGPU", "elasticgpus")
SHAREPODS = ("sharepods.kubeshare.nthu",)
ELASTIC = tuple(f"{one}.elasticgpu.io" for one in (
    "elasticgpus", "elasticgpuclaims", "elasticgpuclasses"
))  # fmt: skip


async def check_definitions(client: AsyncClient, names: Sequence[str]) -> None:
    """Checks that the CRDs are ours.

    Raises:
        ConfigError: one is missing, or belongs to another system.
    """
    for name in names:
        found = None
        try:
            found = (await client.get(CustomResourceDefinition, name)).to_dict()
        except CALL_ERRORS as error:
            if code_of(error) != _NOT_FOUND:
                raise ConfigError(f"CRD {name} cannot be read: {sentence_of(error)}") from None
        why = may_serve(found, name)
        if why:
            raise ConfigError(why)


class Controller:
    """Looks at objects one after the other. Namespaces take turns, so that one with thousands of
    objects does not hold up others. Subclasses say which objects, and what is done.
    """

    def __init__(self, client: AsyncClient) -> None:
        self.client: Any = client
        self._dirty: TurnQueue[Key] = TurnQueue()
        self._woken = asyncio.Event()
        self._again = Again(self.look)
        self.informers: list[Informer[Any]] = []

    def watch(
        self,
        kind: Any,
        keys_of: Callable[[Any], Iterable[Key]],
        labels: Mapping[str, str] | None = None,
    ) -> Informer[Any]:
        """Watches a kind. keys_of: which objects are to be looked at when one of it changes."""

        def changed(before: Any, after: Any) -> None:
            for key in keys_of(after if after is not None else before):
                self._again.begin_anew(key)
                self.look(key)

        where: dict[str, Any] = {} if kind in (Class, Gpu) else {"namespace": ALL}
        made: Informer[Any] = Informer(
            self.client, kind, labels=dict(labels or {}), on_change=changed, **where
        )
        self.informers.append(made)
        return made

    def look(self, key: Key) -> None:
        """Has an object looked at soon."""
        self._dirty.add(key, key[0])
        self._woken.set()

    async def run(self) -> None:
        """Works until it is cancelled."""
        tasks = [asyncio.ensure_future(one.run()) for one in self.informers]
        tasks.append(asyncio.ensure_future(self._all()))
        try:
            for one in self.informers:
                await one.synced.wait()
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._work()
        finally:
            self._again.close()
            await end(tasks)

    async def _all(self) -> None:
        while True:
            await asyncio.sleep(_ALL_SECONDS)
            for key in self.keys():
                if not self._again.waits(key):
                    self.look(key)

    async def _work(self) -> None:
        while self._dirty:
            key = self._dirty.pop()
            try:
                await self.keep(key)
            except CALL_ERRORS as error:
                if code_of(error) not in (_CONFLICT, _NOT_FOUND):
                    log.warning("%s/%s: %s", *key, sentence_of(error))
                self._again.failed(key)
            except Exception:
                # A defect for one object must not stop the others.
                log.exception("%s/%s was not looked at", *key)
            else:
                self._again.begin_anew(key)

    def keys(self) -> list[Key]:
        """Returns the objects that there are."""
        raise NotImplementedError

    async def keep(self, key: Key) -> None:
        """Has the world be as an object says."""
        raise NotImplementedError

    async def make(self, content: Mapping[str, Any]) -> bool:
        """Creates an object; False if one of its name is there."""
        try:
            await self.client.create(codecs.from_dict(dict(content)))
        except CALL_ERRORS as error:
            if code_of(error) == _CONFLICT:
                return False
            raise
        return True

    async def drop(self, kind: Any, made: Any, owner: str) -> None:
        """Deletes what was made for an object of kind `owner` that has gone.

        Kubernetes does so, too, but it learns of a new CRD half a minute late.
        """
        if made is None or made.metadata.deletionTimestamp is not None:
            return
        if any(one.kind == owner for one in made.metadata.ownerReferences or []):
            await self.client.delete(kind, made.metadata.name, namespace=made.metadata.namespace)

    async def set_status(
        self, kind: Any, one: Mapping[str, Any], status: Mapping[str, Any]
    ) -> None:
        """Writes a status that differs from what the object has. None: the field goes."""
        if one.get("status") == {name: x for name, x in status.items() if x is not None}:
            return
        metadata = one["metadata"]
        where = {"namespace": metadata["namespace"]} if metadata.get("namespace") else {}
        change = {"metadata": {"uid": metadata["uid"]}, "status": status}
        await self.client.patch(
            kind.Status, metadata["name"], change, patch_type=PatchType.MERGE, **where
        )


class SharePods(Controller):
    """SharePod -> its pod; the pod's status -> the SharePod."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._shares = self.watch(SharePod, _own)
        self._pods = self.watch(Pod, _own, _LABELS)

    def keys(self) -> list[Key]:
        return list(self._shares.store)

    async def keep(self, key: Key) -> None:
        found, pod = self._shares.store.get(key), self._pods.store.get(key)
        if found is None:
            await self.drop(Pod, pod, "SharePod")
            return
        if found.metadata.deletionTimestamp is not None:
            return
        share = found.to_dict()
        if pod is not None:
            if made_for(pod.to_dict(), share):
                await self.set_status(SharePod, share, sharepods.status_of(pod.to_dict()))
            return
        try:
            made, templates = sharepods.pod_of(share)
        except RequestError as error:
            await self.set_status(SharePod, share, sharepods.refused(str(error)))
            return
        for name, spec in templates.items():
            await self.make(template_of(name, key[0], spec))
        if not await self.make(made):
            there = (await self.client.get(Pod, key[1], namespace=key[0])).to_dict()
            if not made_for(there, share):
                why = f"there is another pod {key[1]}; delete it, or name the SharePod otherwise"
                await self.set_status(SharePod, share, sharepods.refused(why))


class ElasticClasses(Controller):
    """ElasticGPUClass of ours -> DeviceClass."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._classes = self.watch(Class, _own)

    def keys(self) -> list[Key]:
        return list(self._classes.store)

    async def keep(self, key: Key) -> None:
        found = self._classes.store.get(key)
        if found is None or not elastic.is_ours(found.to_dict()):
            return
        try:
            made = elastic.device_class(found.to_dict())
        except RequestError as error:
            log.warning("ElasticGPUClass %s has no DeviceClass: %s", key[1], error)
            return
        await self.client.apply(codecs.from_dict(made), field_manager=_MANAGER, force=True)


class ElasticClaims(Controller):
    """ElasticGPUClaim of a class of ours -> ResourceClaim; what that has -> ElasticGPU."""

    def __init__(self, client: AsyncClient) -> None:
        super().__init__(client)
        self._claims = self.watch(Claim, _own)
        # A claim may be heard of before its class is.
        self._classes = self.watch(Class, self._claims_of)
        self._made = self.watch(ResourceClaim, _claim_keys, _LABELS)
        self._shown = self.watch(Gpu, lambda gpu: [_shown_key(gpu)], _LABELS)

    def keys(self) -> list[Key]:
        return list(self._claims.store)

    async def keep(self, key: Key) -> None:
        found = self._claims.store.get(key)
        claim = found.to_dict() if found is not None else None
        made = self._made.store.get((key[0], elastic.claim_name(key[1])))
        if claim is None:
            await self.drop(ResourceClaim, made, "ElasticGPUClaim")
            await self._show(key, [])
            return
        content = made.to_dict() if made is not None else None
        if content is not None and not made_for(content, claim):
            content = None
        # A claim that was met stays ours when its class is deleted.
        if content is None and not self._is_ours(claim):
            await self._show(key, [])
            return
        phase = (claim.get("status") or {}).get("phase", "")
        now, why = elastic.phase_of(content, phase), None
        if content is None and now is not elastic.LOST:
            try:
                await self.make(elastic.resource_claim(claim))
            except RequestError as error:
                why = f"rgpu: {error}"
        rows = list(elastic.shown(claim, content)) if content is not None else []
        await self._show(key, rows)
        await self.set_status(Claim, claim, {"phase": now, "message": why})

    def _claims_of(self, found: Any) -> list[Key]:
        name = found.metadata.name
        return [key for key, one in self._claims.store.items() if _class_of(one.to_dict()) == name]

    def _is_ours(self, claim: Mapping[str, Any]) -> bool:
        found = self._classes.store.get(("", _class_of(claim)))
        return found is not None and elastic.is_ours(found.to_dict())

    async def _show(self, key: Key, rows: Sequence[Mapping[str, Any]]) -> None:
        """Has just these ElasticGPUs be there for a claim."""
        wanted = {row["metadata"]["name"]: row for row in rows}
        there = {n for (_, n), one in self._shown.store.items() if _shown_key(one) == key}
        for name in there - wanted.keys():
            await self.client.delete(Gpu, name)
        for name, row in wanted.items():
            one = self._shown.store.get(("", name))
            if one is not None and one.to_dict().get("spec") != row["spec"]:
                # The claim was allocated anew before anybody looked.
                await self.client.delete(Gpu, name)
                one = None
            if one is None:
                await self.make(row)
                one = await self.client.get(Gpu, name)
            await self.set_status(Gpu, one.to_dict(), row["status"])


async def run_all(controllers: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Runs controllers until one fails or all are cancelled."""
    tasks = [asyncio.ensure_future(one()) for one in controllers]
    try:
        await asyncio.gather(*tasks)
    finally:
        await end(tasks)


def _own(one: Any) -> list[Key]:
    return [(one.metadata.namespace or "", one.metadata.name)]


def _class_of(claim: Mapping[str, Any]) -> str:
    return str((claim.get("spec") or {}).get("elasticGPUClassName"))


def _claim_keys(made: Any) -> list[Key]:
    """Returns the ElasticGPUClaim of a ResourceClaim, if it has one."""
    owners = made.metadata.ownerReferences or []
    space = made.metadata.namespace
    return [(space, owner.name) for owner in owners if owner.kind == "ElasticGPUClaim"]


def _shown_key(one: Any) -> Key:
    """Returns the ElasticGPUClaim of an ElasticGPU."""
    reference = (one.to_dict().get("spec") or {}).get("claimRef") or {}
    return (reference.get("namespace", ""), reference.get("name", ""))
