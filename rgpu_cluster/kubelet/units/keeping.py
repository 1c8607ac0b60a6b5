"""Gives containers with units their leases, and ends leases whose containers have gone.

The kubelet says three things at different times: the units of one resource (Allocate), that the
container with them starts (PreStartContainer), and on demand which container has which units. The
lease is made at the second, from the third, so that no container gets what another one asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.held import name_of, new_held
from rgpu_cluster.kubelet.units.inventory import cards_of
from rgpu_cluster.kubelet.units.vocabulary import asked, check_core
from rgpu_cluster.kubernetes.names import AGENT_ATTEMPT
from rgpu_common.claim_tokens import make

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rgpu_cluster.kubelet.units.daemon import Daemon
    from rgpu_cluster.kubelet.units.held import Held, HeldFolder
    from rgpu_cluster.kubelet.units.vocabulary import Vocabulary

log = logging.getLogger("rgpu.device-plugin")

# The kubelet is asked so often which containers there are.
ROUND_SECONDS = 1.0
# A container appears in the kubelet's list soon after its units were chosen.
_APPEARS_SECONDS = 60.0
_TOKEN_SECONDS = 2 * 86400.0
_RENEW_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Container:
    """A container with units, as the kubelet lists it. units: how many of each resource."""

    namespace: str
    pod: str
    name: str
    leading: tuple[str, ...]
    units: dict[str, int]


class Containers(Protocol):
    """What the kubelet knows."""

    async def listed(self) -> list[Container]:
        """Returns the containers with units of the leading resource; PrepareError."""


@dataclass(frozen=True, slots=True)
class Given:
    """What Allocate gives a container. devices: RGPU_DEVICE."""

    server: str
    lease: str
    devices: str
    credentials: Path


class Keeper:
    """All containers with units of this node. key: the node's key for credentials."""

    def __init__(
        self,
        vocabulary: Vocabulary,
        folder: HeldFolder,
        daemon: Daemon,
        kubelet: Containers,
        key: bytes,
    ) -> None:
        self._vocabulary = vocabulary
        self._folder = folder
        self._daemon = daemon
        self._kubelet = kubelet
        self._key = key
        self._held = folder.read()
        self._renewed = 0.0
        self._lock = asyncio.Lock()

    async def allocate(self, ids: Sequence[str]) -> Given:
        """Notes the units of a container's leading resource.

        Raises:
            PrepareError: no lease can be so.
        """
        cards = cards_of(ids)
        per_card = Counter(one.rpartition(".")[0] for one in ids)
        leading = self._vocabulary.leading
        if not leading.unit_bytes:
            check_core(len(ids))
        report = self._daemon.report
        if report is None:
            raise PrepareError("start `rgpu serve` on this node: it does not answer")
        wanted = max(len(ids) // 100, 1) if not leading.unit_bytes else 1
        if len(per_card) != wanted:
            raise PrepareError(
                f"the free units of {leading.name} are on {len(per_card)} cards, and the container "
                f"needs {wanted}: delete the pod, so that a new one waits for room on one card"
            )
        async with self._lock:
            held = new_held(ids, time.time())
            await self._end(name_of(ids))
            self._put(held)
        devices = ",".join(map(str, cards))
        return Given(report.address, held.request, devices, self._folder.credentials(held))

    async def start(self, ids: Sequence[str]) -> None:
        """Grants the lease of a container that starts, if it has none.

        Raises:
            PrepareError: it is not granted.
        """
        async with self._lock:
            held = self._held.get(name_of(ids))
            if held is None:
                raise PrepareError("the container's units are not known here: delete the pod")
            container = self._of(held, await self._kubelet.listed())
            if container is None:
                raise PrepareError("the kubelet does not say yet whose units these are; ask again")
            wish = asked(self._vocabulary, container.units)
            if wish.cards != len(cards_of(held.ids)):
                raise PrepareError(
                    f"the container asks for {wish.cards} whole cards, and its units of "
                    f"{self._vocabulary.leading.name} are of one: ask for one card at most"
                )
            attempt = max(held.attempt, AGENT_ATTEMPT)
            held = replace(held, tenant=container.namespace, attempt=attempt)
            await self._daemon.grant(held.request, attempt, held.tenant, wish, cards_of(held.ids))
            self._put(held, self._token(held))
            log.info("container %s of pod %s/%s has its lease %s",
                     container.name, container.namespace, container.pod, held.request)  # fmt: skip

    async def run(self) -> None:
        """Ends leases whose containers have gone, until it is cancelled."""
        while True:
            try:
                await self.round()
            except PrepareError as error:
                log.warning("%s", error)
            await asyncio.sleep(ROUND_SECONDS)

    async def round(self) -> None:
        """Keeps the leases of the containers that the kubelet lists, and ends the others.

        Raises:
            PrepareError: the kubelet or the server does not answer.
        """
        async with self._lock:
            if not self._held:
                return
            there = {name_of(one.leading) for one in await self._kubelet.listed()}
            now = time.time()
            for name, held in [*self._held.items()]:
                new = not held.tenant and now - held.made < _APPEARS_SECONDS
                if name not in there and not new:
                    await self._end(name)
            granted = [held for held in self._held.values() if held.tenant]
            if granted:
                await self._daemon.keep(held.request for held in granted)
            if now - self._renewed >= _RENEW_SECONDS:
                for held in granted:
                    self._put(held, self._token(held))
                self._renewed = now

    async def _end(self, name: str) -> None:
        """Ends the lease of these units and removes what is there of it."""
        held = self._held.get(name)
        if held is None:
            return
        if held.tenant:
            await self._daemon.revoke(held.request, held.attempt)
        self._folder.remove(held)
        del self._held[name]

    def _put(self, held: Held, token: str = "") -> None:
        try:
            self._folder.put(held, token)
        except OSError as error:
            raise PrepareError(
                f"{error.filename} cannot be written ({error.strerror}): make room on this node, "
                "or name another folder with --state"
            ) from None
        self._held[name_of(held.ids)] = held

    def _token(self, held: Held) -> str:
        return make(self._key, held.request, held.tenant, time.time() + _TOKEN_SECONDS)

    def _of(self, held: Held, containers: Sequence[Container]) -> Container | None:
        found = (one for one in containers if tuple(sorted(one.leading)) == held.ids)
        return next(found, None)
