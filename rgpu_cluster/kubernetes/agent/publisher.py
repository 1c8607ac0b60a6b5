"""Keeps the node's pool in the API server as it should be."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from lightkube.resources.core_v1 import Node
from lightkube.resources.resource_v1 import ResourceSlice

from rgpu_cluster.kubernetes import names
from rgpu_cluster.kubernetes.agent.dropped import dropped_words
from rgpu_cluster.kubernetes.agent.publishing import of_pool, plan, timeless
from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of
from rgpu_cluster.kubernetes.informer import Informer
from rgpu_common.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lightkube import AsyncClient

    from rgpu_cluster.kubernetes.agent.publishing import Write
    from rgpu_cluster.kubernetes.slices import Device, Place

log = logging.getLogger("rgpu.kubernetes")

_NOT_FOUND, _FORBIDDEN, _CONFLICT = 404, 403, 409
# How long what is known of the Node counts, and how long that it is not there or has no zone.
_AGAIN_SECONDS, _RETRY_SECONDS = 300.0, 30.0


class Publisher:
    """on_change: called when somebody has changed the pool.

    `look` finds the Node, then `publish` writes. Both raise one of `api.CALL_ERRORS`. owner: the
    reference to the Node, for what belongs to it; None: there is none.
    """

    def __init__(self, client: AsyncClient, node: str, on_change: Callable[[], None]) -> None:
        self._client = client
        self._node = node
        self._on_change = on_change
        # Our own writes, until the watch tells of them or of later ones.
        self._written: dict[str, dict[str, Any]] = {}
        # Specs of our writes, and what the API server has made of them where it has dropped some.
        self._asked: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._said = ""
        self.owner: dict[str, Any] | None = None
        # When the Node is looked at again: it may come later, or get its zone later.
        self._look_at = 0.0
        self.zone = ""
        self.slices: Informer[ResourceSlice] = Informer(
            client, ResourceSlice, labels={names.POOL_LABEL: node}, on_change=self._changed
        )

    def found(self) -> list[dict[str, Any]]:
        """Returns the slices of the pool as far as they are known."""
        known: dict[str, dict[str, Any]] = {
            name: one.to_dict() for (_, name), one in self.slices.store.items()
        }
        known |= self._written
        return [self._as_asked(one) for one in known.values() if of_pool(one, self._node)]

    def _as_asked(self, content: dict[str, Any]) -> dict[str, Any]:
        """Returns a slice as it was to be, if it is what the API server has made of that. Else each
        look would find that something is missing, and would write it again.
        """
        asked, kept = self._asked.get(content["metadata"]["name"], (None, None))
        return content if timeless(content["spec"]) != kept else {**content, "spec": asked}

    async def look(self) -> None:
        """Finds the Node, which owns the pool and says in which zone it is, now and then."""
        if time.monotonic() < self._look_at:
            return
        try:
            node: Any = await self._client.get(Node, self._node)
        except CALL_ERRORS as error:
            if code_of(error) not in (_NOT_FOUND, _FORBIDDEN):
                raise
            if not self._look_at:
                log.info("no Node %s can be read, so it does not own the pool", self._node)
            self.owner, self.zone = None, ""
        else:
            metadata = node.metadata
            self.owner = {
                "apiVersion": "v1",
                "kind": "Node",
                "name": self._node,
                "uid": str(metadata.uid),
            }
            self.zone = str((metadata.labels or {}).get(names.ZONE_LABEL, ""))
        self._look_at = time.monotonic() + (_AGAIN_SECONDS if self.zone else _RETRY_SECONDS)

    async def publish(self, devices: Sequence[Device], place: Place) -> None:
        """Writes what differs. A write that another one has overtaken is tried again later."""
        writes = plan(self.found(), devices, place, self.owner)
        for write in writes:
            await self._write(write)
        if writes:
            keys = sorted({taint["key"] for one in devices for taint in one.get("taints") or []})
            taints = f", taints: {', '.join(keys)}" if keys else ""
            log.info("pool %s: %s%s", self._node, counted(len(devices), "device"), taints)

    async def _write(self, write: Write) -> None:
        try:
            await self._carry_out(write)
        except CALL_ERRORS as error:
            if code_of(error) == _CONFLICT:
                await self._take_over(write.name)
            raise

    async def _carry_out(self, write: Write) -> None:
        if write.verb == "delete":
            try:
                await self._client.delete(ResourceSlice, write.name)
            except CALL_ERRORS as error:
                if code_of(error) != _NOT_FOUND:
                    raise
            self._written.pop(write.name, None)
            self.slices.store.pop(("", write.name), None)
            return
        content = ResourceSlice.from_dict(write.content)
        act = self._client.create if write.verb == "create" else self._client.replace
        try:
            done: Any = await act(content)
        except CALL_ERRORS as error:
            if write.verb == "replace" and code_of(error) == _NOT_FOUND:
                self._written.pop(write.name, None)
                self.slices.store.pop(("", write.name), None)
            raise
        self._written[write.name] = made = done.to_dict()
        self._note_dropped(write, made["spec"])

    def _note_dropped(self, write: Write, kept: dict[str, Any]) -> None:
        asked = write.content["spec"]
        self._asked.pop(write.name, None)
        if timeless(kept) == timeless(asked):
            return
        self._asked[write.name] = asked, timeless(kept)
        words = dropped_words(asked, kept)
        if words and words != self._said:
            log.warning("%s", words)
            self._said = words

    async def _take_over(self, name: str) -> None:
        """Learns what stands under a name of ours instead of what was expected there."""
        try:
            there: Any = await self._client.get(ResourceSlice, name)
        except CALL_ERRORS as error:
            log.debug("%s: %s", name, sentence_of(error))
            self._written.pop(name, None)
            return
        content = there.to_dict()
        if of_pool(content, self._node):
            self._written[name] = content
        else:
            log.error(
                "the ResourceSlice %s is not of the pool %s, so this node's devices cannot be "
                "published; remove it",
                name,
                self._node,
            )

    def _changed(self, before: Any, after: Any) -> None:
        one = after if after is not None else before
        mine = self._written.get(one.metadata.name)
        if after is None:
            # The garbage collector removes a pool with its Node; there may be a new one.
            self._look_at = 0.0
        if mine is not None and (after is None or _version(after) >= _version_of(mine)):
            del self._written[one.metadata.name]
        self._on_change()


def _version(one: Any) -> int:
    return _number(one.metadata.resourceVersion)


def _version_of(content: dict[str, Any]) -> int:
    return _number(content["metadata"].get("resourceVersion"))


def _number(version: object) -> int:
    """Returns a resource version as the number that it is since Kubernetes 1.35."""
    text = str(version)
    return int(text) if text.isdecimal() else 0
