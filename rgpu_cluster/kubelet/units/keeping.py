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
from functools import partial
from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

from msgspec import Struct
from msgspec.structs import replace

from rgpu_cluster.kubelet.errors import PrepareError
from rgpu_cluster.kubelet.units.held import name_of, new_held
from rgpu_cluster.kubelet.units.inventory import cards_of
from rgpu_cluster.kubelet.units.vocabulary import asked, check_core
from rgpu_cluster.kubernetes.names import AGENT_ATTEMPT
from rgpu_common.claim_tokens import make
from rgpu_common.tasks import end
from rgpu_common.turns import TurnPlaces

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
_ENDS_AT_ONCE = 16


class Container(Struct, frozen=True):
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


class Given(Struct, frozen=True):
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
        # The units of one container are changed by one call at a time, so that a slow call for one
        # container holds up no other. Who uses a lock holds it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # What is being ended. Of those that wait, namespaces take turns. It is named by itself, and
        # not by its units: while it waits, the kubelet may give these to another container.
        self._ending: dict[Held, asyncio.Task[None]] = {}
        self._places = TurnPlaces(_ENDS_AT_ONCE)
        # Leases of which the log says that they could not be ended.
        self._told: set[str] = set()

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
        async with self._lock(name_of(ids)):
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
        async with self._lock(name_of(ids)):
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
        said = ""
        try:
            while True:
                why = await self._tried()
                if why and why != said:
                    log.warning("%s", why)
                said = why
                await asyncio.sleep(ROUND_SECONDS)
        finally:
            await end(self._ending.values())

    async def _tried(self) -> str:
        """Makes a round, and returns why it failed, or ""."""
        try:
            await self.round()
        except PrepareError as error:
            return str(error)
        return ""

    async def round(self) -> None:
        """Keeps the leases of the containers that the kubelet lists, and begins to end the others:
        what is kept does not wait for what ends. A kubelet that does not answer has ended nothing.

        Raises:
            PrepareError: the kubelet or the server does not answer.
        """
        if not self._held:
            return
        try:
            await self._begin_to_end()
        except PrepareError:
            await self._keep()
            raise
        await self._keep()

    async def _begin_to_end(self) -> None:
        """Begins to end the leases of containers that the kubelet no more lists."""
        before = dict(self._held)
        there = {name_of(one.leading) for one in await self._kubelet.listed()}
        for name, held in before.items():
            if name not in there and held not in self._ending and _is_old(held):
                self._ending[held] = asyncio.ensure_future(self._end_gone(name, held))
                self._ending[held].add_done_callback(partial(self._gone, held))

    async def _keep(self) -> None:
        """Keeps all leases that do not end, and their credentials."""
        kept = [held.request for held in self._granted()]
        if kept:
            await self._daemon.keep(kept)
        now = time.time()
        if now - self._renewed >= _RENEW_SECONDS:
            for held in self._granted():
                self._put(held, self._token(held))
            self._renewed = now

    def _granted(self) -> list[Held]:
        return [one for one in self._held.values() if one.tenant and one not in self._ending]

    async def _end_gone(self, name: str, held: Held) -> None:
        """Ends the lease of a container that has gone, unless its units have another one now."""
        async with self._places.place(held.tenant), self._lock(name):
            if self._held.get(name) is held:
                await self._end(name)

    def _gone(self, held: Held, task: asyncio.Task[None]) -> None:
        """Says once for each lease that it could not be ended: the next round tries again."""
        del self._ending[held]
        error = None if task.cancelled() else task.exception()
        given_away = self._held.get(name_of(held.ids)) is not held
        if error is None or given_away or held.request in self._told:
            return
        self._told.add(held.request)
        if isinstance(error, PrepareError):
            log.warning("the lease %s could not be ended: %s", held.request, error)
        else:
            log.error("the lease %s could not be ended", held.request, exc_info=error)

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _end(self, name: str) -> None:
        """Ends the lease of these units and removes what is there of it."""
        held = self._held.get(name)
        if held is None:
            return
        if held.tenant:
            await self._daemon.revoke(held.request, held.attempt)
        self._folder.remove(held)
        del self._held[name]
        self._told.discard(held.request)

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


def _is_old(held: Held) -> bool:
    """Returns whether the kubelet would list the container by now, if it was still there."""
    return bool(held.tenant) or time.time() - held.made >= _APPEARS_SECONDS
