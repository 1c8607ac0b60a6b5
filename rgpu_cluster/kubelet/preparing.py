"""Prepares claims for the containers of this node, keeps their credentials valid, removes them."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from rgpu_cluster.kubelet import cdi
from rgpu_cluster.kubelet.claims import allocated, check_uid
from rgpu_cluster.kubelet.containers import Folders, devices_for
from rgpu_cluster.kubelet.credentials import Credential
from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.pods import use_of
from rgpu_cluster.kubelet.shelf import Held, Prepared
from rgpu_cluster.kubernetes.names import MANAGED, PLACEMENT_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from rgpu_cluster.kubelet.claims import Allocated, ClaimName
    from rgpu_cluster.kubelet.credentials import Agents
    from rgpu_cluster.kubelet.pods import Use
    from rgpu_cluster.kubelet.reading import Cluster
    from rgpu_cluster.kubelet.store import Store

log = logging.getLogger("rgpu.node-plugin")


class ForContainers(Struct, frozen=True):
    """One device of a claim, and what the container runtime adds for it."""

    request: str
    pool: str
    device: str
    share: str
    cdi_ids: tuple[str, ...]


class Places(Struct, frozen=True):
    """node: the name of this node. library: its folder with the driver library. server_name: as
    `Folders` has it.
    """

    node: str
    library: str
    store: Store
    server_name: str = ""


class Preparer:
    """All claims of this node.

    now: the time in seconds since 1970. `changed` is called when a claim has been prepared.
    """

    def __init__(
        self,
        places: Places,
        cluster: Cluster,
        agents: Agents,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._places = places
        self._cluster = cluster
        self._agents = agents
        self._now = now
        self.changed: Callable[[], None] = lambda: None
        # One claim is changed by one call at a time. Who uses a lock holds it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.prepared = places.store.shelf.read()

    async def prepare(
        self, claim: ClaimName, beside: Collection[ClaimName] = ()
    ) -> list[ForContainers]:
        """Prepares a claim, also one that is prepared already. beside: the other claims that the
        kubelet asks for now.

        Raises:
            PrepareError: it is not prepared. What was prepared of it before stays.
        """
        check_uid(claim)
        async with self._lock(claim.uid):
            found = allocated(claim, await self._cluster.claim(claim))
            pods = await self._cluster.pods(claim.namespace, found.pod_names, self._places.node)
            ours = {one.name for one in (*beside, *(p.claim for p in self.prepared.values()))
                    if one.namespace == claim.namespace}  # fmt: skip
            use = use_of(found, pods, self._places.node, ours)
            held = await asyncio.gather(
                *(self._ask(pool, claim, use.tokens) for pool in found.pools)
            )
            return self._put(found, use, Prepared(claim, use.user, tuple(held)))

    async def unprepare(self, claim: ClaimName) -> None:
        """Removes all that was prepared of a claim, if there is something.

        Raises:
            PrepareError: it cannot be removed.
        """
        async with self._lock(claim.uid):
            self.prepared.pop(claim.uid, None)
            self._places.store.remove(claim)

    async def renew(self, uid: str, pool: str) -> None:
        """Replaces the credential of a claim for one GPU node, if the claim is still prepared.

        Raises:
            PrepareError: the old credential stays.
        """
        before = self.prepared.get(uid)
        if before is None:
            return
        held = await self._ask(pool, before.claim, own=False)
        async with self._lock(uid):
            prepared = self.prepared.get(uid)
            if prepared is None:
                return
            both = tuple(held if one.pool == pool else one for one in prepared.held)
            # Tokens that are not renewed are not known here, and stay in their files.
            renewed = replace(prepared, held=both)
            self._places.store.put(renewed)
            self.prepared[uid] = renewed

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

    async def _ask(self, pool: str, claim: ClaimName, own: bool) -> Held:
        """Returns a credential. own: the containers can show their own tokens instead."""
        offer = await self._cluster.offer(pool)
        if offer.agent:
            credential = await self._agents.credential(pool, offer.agent, claim)
        elif own and offer.server:
            credential = Credential("", 0.0, offer.server, claim.uid, "")
        else:
            raise PrepareError(
                f"GPU node {pool} gives no credentials: give the pod the label "
                f"{PLACEMENT_LABEL}: {MANAGED}, for which it gets a token of its own, or start "
                "`rgpu agent-node` there with --listen"
            )
        return Held(pool, offer.agent, self._now(), credential)

    def _put(self, found: Allocated, use: Use, prepared: Prepared) -> list[ForContainers]:
        uid, store = found.claim.uid, self._places.store
        folders = Folders(
            self._places.library,
            str(store.shelf.credentials(uid)),
            store.shelf.has_authorities,
            self._places.server_name,
        )
        devices = devices_for(found, use, prepared.held, folders)
        store.put(prepared, cdi.spec_of(uid, devices))
        self.prepared[uid] = prepared
        self.changed()
        log.info("%s is prepared, with cards of %s", found.claim, " and ".join(found.pools))
        return _for_containers(found, use)


def _for_containers(found: Allocated, use: Use) -> list[ForContainers]:
    """Returns the devices. Only the first card of the claim, or of each request, says what the
    runtime adds, because a runtime adds it as often as it is said.
    """
    told: set[str] = set()
    result = []
    for part in found.parts:
        request = part.request if use.by_request else ""
        first = request not in told and part.ordinal is not None
        ids = (cdi.device_id(found.claim.uid, request),) if first else ()
        told |= {request} if first else set()
        result.append(ForContainers(part.request, part.pool, part.device, part.share, ids))
    return result
