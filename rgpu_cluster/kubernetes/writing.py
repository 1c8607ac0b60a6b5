"""What the manager writes into Kubernetes: allocations, gates, and sentences for people."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections import Counter
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from lightkube.models.core_v1 import EventSource, ObjectReference
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Pod, PodStatus
from lightkube.resources.resource_v1 import ResourceClaim, ResourceClaimStatus
from lightkube.types import PatchType

from rgpu_cluster.kubernetes.allocation import Place, allocated, allocation
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.names import FINALIZER, GATE, GROUP, SERVER, card_device
from rgpu_cluster.kubernetes.objects import Objects, read
from rgpu_cluster.kubernetes.times import written
from rgpu_cluster.kubernetes.views import reservation_user
from rgpu_common.turns import TurnPlaces

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.wishes import Wish

log = logging.getLogger("rgpu.kubernetes")

CONDITION = f"{GROUP}/Placed"
# The reason of an event, and of the condition when it is true.
PLACED = "GpuPlaced"
_COMPONENT = "rgpu-manager"
_TRIES = 5
_PAUSE_SECONDS = 0.1
_NOT_FOUND, _CONFLICT = 404, 409
_MOST_SENTENCE = 1000
# At most so many writes are under way. Namespaces take turns for these places.
_AT_ONCE = 32
_SENTENCES_AT_ONCE = 8
# What can be a namespace. "*" would be all of them.
_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
# With more allocations of a namespace under way, its users are not told that they were made.
_FEW = 4
# Whose turn it is where the manager asks for itself: no namespace has this name.
_OWN = ""


class Writer:
    """Each method returns whether it has written; errors of the API server are logged."""

    def __init__(self, client: AsyncClient) -> None:
        self._client: Any = client
        self._places = TurnPlaces(_AT_ONCE)
        # The same for sentences, so that no pod waits for those to thousands of others.
        self._sentences = TurnPlaces(_SENTENCES_AT_ONCE)
        # Namespace -> its allocations that are written or wait for that.
        self._writes: Counter[str] = Counter()
        # Pod -> the sentence that its condition has, so that nothing is said twice.
        self._told: dict[str, str] = {}

    async def allocate(
        self, claim: Any, wish: Wish, places: Sequence[Place], user: dict[str, str]
    ) -> str:
        """Writes where a claim's cards are, and who uses them. claim: as it was last heard.

        Returns why not, else "".
        """
        why = "it changed too often"
        namespace, name = claim.metadata.namespace, claim.metadata.name
        self._writes[namespace] += 1
        try:
            for number in range(_TRIES):
                try:
                    # Others have the place while this claim waits for its next try.
                    async with self._places.place(namespace):
                        if number:
                            claim = await read(self._client, ResourceClaim, name, namespace)
                        return await self._allocate(claim, wish, places, user)
                except CALL_ERRORS as error:
                    if code_of(error) == _NOT_FOUND:
                        return "it has gone"
                    if code_of(error) != _CONFLICT:
                        why = sentence_of(error)
                        log.warning("claim %s/%s: %s", namespace, name, why)
                await asyncio.sleep(number * _PAUSE_SECONDS)
            return why
        finally:
            self._writes[namespace] -= 1
            if not self._writes[namespace]:
                del self._writes[namespace]

    async def _allocate(
        self, claim: Any, wish: Wish, places: Sequence[Place], user: dict[str, str]
    ) -> str:
        namespace, name = claim.metadata.namespace, claim.metadata.name
        content = claim.to_dict()
        if claim.metadata.uid != wish.request.id or claim.metadata.deletionTimestamp is not None:
            return "it is another claim now, or is being deleted"
        if (content.get("status") or {}).get("allocation"):
            same = _same(content, places)
            return "" if same else "somebody else has allocated it"
        finalizers = claim.metadata.finalizers or []
        if FINALIZER not in finalizers:
            content["metadata"]["finalizers"] = [*finalizers, FINALIZER]
            # The version in the metadata has the server refuse if the claim has changed.
            held = ResourceClaim.from_dict(content)
            content = (await self._client.replace(held, name, namespace=namespace)).to_dict()
        made = allocation(wish, places, now(), lambda: str(uuid.uuid4()))
        content["status"] = {"allocation": made, "reservedFor": [user]}
        status = ResourceClaimStatus.from_dict(content)
        await self._client.replace(status, name, namespace=namespace)
        return ""

    async def end_reservation(self, claim: Any) -> None:
        """Takes the reservation out of a claim. If no pod uses the claim it is deallocated; else
        Kubernetes does so when the last one has gone.
        """
        namespace, name = claim.metadata.namespace, claim.metadata.name
        content = claim.to_dict()
        mine = reservation_user(claim)
        users = content["status"].get("reservedFor") or []
        left = [one for one in users if one["uid"] != mine["uid"]]
        content["status"]["reservedFor"] = left
        if not left:
            content["status"] = {}
        try:
            async with self._places.place(namespace):
                status = ResourceClaimStatus.from_dict(content)
                held = await self._client.replace(status, name, namespace=namespace)
                if not left:
                    content = held.to_dict()
                    finalizers = content["metadata"].get("finalizers") or []
                    content["metadata"]["finalizers"] = [x for x in finalizers if x != FINALIZER]
                    free = ResourceClaim.from_dict(content)
                    await self._client.replace(free, name, namespace=namespace)
        except CALL_ERRORS as error:
            if code_of(error) not in (_NOT_FOUND, _CONFLICT):
                log.warning("claim %s/%s: %s", namespace, name, sentence_of(error))

    async def release(self, pod: Any, told: Mapping[str, str]) -> bool:
        """Removes our gate from a pod, and annotates it in the same write. told: its server, or
        that an agent is to tell it.
        """
        gates = [one.name for one in pod.spec.schedulingGates]
        place = f"/spec/schedulingGates/{gates.index(GATE)}"
        change: list[dict[str, Any]] = [
            # Another pod may have this name by now, and others may remove other gates.
            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": f"{place}/name", "value": GATE},
            {"op": "remove", "path": place},
        ]
        if told and not pod.metadata.annotations:
            change.append({"op": "add", "path": "/metadata/annotations", "value": dict(told)})
        elif told:
            change += [
                {"op": "add", "path": f"/metadata/annotations/{_pointer(name)}", "value": text}
                for name, text in told.items()
            ]
        waited = self._told.pop(pod.metadata.uid, "") or _says_that_it_waits(pod)
        gone = await self._patch(Pod, pod, change, PatchType.JSON, self._places)
        if gone and SERVER in told and waited:
            await self._condition(pod, "True", PLACED, "its claims have their cards")
        return gone

    async def uids(self, namespace: str, *kinds: Any) -> set[str] | None:
        """Returns the UIDs of all objects of these kinds; None: nobody can say that now.

        A node may have made the namespace up.
        """
        if not _NAMESPACE.fullmatch(namespace):
            return set()
        found: set[str] = set()
        try:
            async with self._sentences.place(_OWN):
                for kind in kinds:
                    listed = Objects(self._client, kind, {"namespace": namespace}).list()
                    found |= {str(one["metadata"].get("uid")) async for one in listed}
        except CALL_ERRORS as error:
            log.info("the objects of %s cannot be listed: %s", namespace, sentence_of(error))
            return None
        return found

    def is_new(self, one: Any, sentence: str) -> bool:
        """Notes the sentence to the users of a pod or a claim, and returns whether it is another
        one than the last.
        """
        uid, sentence = one.metadata.uid, sentence[:_MOST_SENTENCE]
        if self._told.get(uid) == sentence:
            return False
        self._told[uid] = sentence
        return True

    async def say(self, pod: Any, reason: str, sentence: str) -> None:
        """Tells the users of a pod why it waits: a condition, and an event. First ask `is_new`."""
        sentence = sentence[:_MOST_SENTENCE]
        if not await self._condition(pod, "False", reason, sentence):
            self._told.pop(pod.metadata.uid, None)
        await self.event(pod, reason, sentence, kind="Warning")

    async def _condition(self, pod: Any, status: str, reason: str, sentence: str) -> bool:
        condition = {
            "type": CONDITION, "status": status, "reason": reason, "message": sentence,
            "lastTransitionTime": now(),
        }  # fmt: skip
        change = {
            # Another pod may have this name by now.
            "metadata": {"uid": pod.metadata.uid},
            "status": {"conditions": [condition]},
        }
        return await self._patch(PodStatus, pod, change, PatchType.STRATEGIC, self._sentences)

    def forget(self, one: Any) -> None:
        """Notes that a pod or a claim has gone."""
        self._told.pop(one.metadata.uid, None)

    async def say_of_claim(self, claim: Any, reason: str, sentence: str) -> None:
        """Tells the users of a claim without pods why it waits: an event. First ask `is_new`."""
        await self.event(claim, reason, sentence[:_MOST_SENTENCE], kind="Warning")

    async def event(self, about: Any, reason: str, sentence: str, kind: str = "Normal") -> None:
        """Writes an event about a pod or a claim, unless so many writes of its namespace wait that
        it would delay pods.
        """
        if kind == "Normal" and self._writes[about.metadata.namespace] > _FEW:
            return
        stamp = datetime.now(timezone.utc)
        metadata = about.metadata
        claim = isinstance(about, ResourceClaim)
        version, what = ("resource.k8s.io/v1", "ResourceClaim") if claim else ("v1", "Pod")
        made = Event(
            metadata=ObjectMeta(
                name=_event_name(metadata.name), namespace=metadata.namespace
            ),
            involvedObject=ObjectReference(
                apiVersion=version, kind=what, name=metadata.name, namespace=metadata.namespace,
                uid=metadata.uid, resourceVersion=metadata.resourceVersion,
            ),
            reason=reason, message=sentence, type=kind, count=1, firstTimestamp=stamp,
            lastTimestamp=stamp, source=EventSource(component=_COMPONENT),
            reportingComponent=_COMPONENT, reportingInstance=_COMPONENT, action=reason,
        )  # fmt: skip
        try:
            async with self._sentences.place(metadata.namespace):
                await self._client.create(made)
        except CALL_ERRORS as error:
            log.info("an event of %s is lost: %s", metadata.name, sentence_of(error))

    async def _patch(
        self, kind: Any, pod: Any, change: Any, how: PatchType, places: TurnPlaces
    ) -> bool:
        metadata = pod.metadata
        try:
            async with places.place(metadata.namespace):
                await self._client.patch(
                    kind, metadata.name, change, namespace=metadata.namespace, patch_type=how
                )
        except CALL_ERRORS as error:
            if code_of(error) not in (_NOT_FOUND, _CONFLICT):
                log.warning("pod %s/%s: %s", metadata.namespace, metadata.name, sentence_of(error))
            return False
        return True


def _says_that_it_waits(pod: Any) -> bool:
    rows = (pod.status.conditions or []) if pod.status is not None else []
    return any(one.type == CONDITION and one.status != "True" for one in rows)


def _pointer(name: str) -> str:
    """Returns a name as a part of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def _event_name(about: str) -> str:
    """Returns a new name for an event. A part of a name may not end with a dash or a dot."""
    return f"{about[:200].rstrip('-.')}.{uuid.uuid4().hex[:12]}"


def _same(content: Mapping[str, Any], places: Sequence[Place]) -> bool:
    return sorted(allocated(content)) == sorted((p.node, card_device(p.ordinal)) for p in places)


def now() -> str:
    """Returns the time as Kubernetes writes it."""
    return written(time.time())
