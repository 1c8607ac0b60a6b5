"""Chooses one leader among the replicas of a manager, by a Lease of Kubernetes.

A candidate takes the Lease if nobody has renewed it for its whole time, as the candidate's own
clock sees it. The leader renews it; if it cannot do so in time, it stops being the leader before
another one can begin.
"""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease
from msgspec import Struct

from rgpu_cluster.kubernetes.api import CALL_ERRORS, code_of, sentence_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightkube import AsyncClient

log = logging.getLogger("rgpu.manager")

LEASE_SECONDS = 15.0
RENEW_SECONDS = 10.0
RETRY_SECONDS = 2.0
_NOT_FOUND, _CONFLICT = 404, 409


class Record(Struct, frozen=True):
    """What a Lease says. holder: "" if nobody has it. version: changes with every write."""

    holder: str
    version: str
    seconds: float = LEASE_SECONDS


class Election:
    """The decisions of one candidate. Times are seconds of its own clock."""

    def __init__(self, identity: str) -> None:
        self._identity = identity
        self._seen: Record | None = None
        self._since = 0.0
        self._renewed: float | None = None

    @property
    def leads(self) -> bool:
        """True if this candidate has the Lease, as far as it knows."""
        return self._renewed is not None

    def may_write(self, record: Record | None, now: float) -> bool:
        """Returns whether this candidate takes or renews the Lease. record: None: there is none."""
        if record != self._seen:
            self._seen, self._since = record, now
        if record is None or not record.holder or record.holder == self._identity:
            return True
        return now - self._since >= record.seconds

    def wrote(self, asked: float) -> None:
        """Notes that a write was accepted that was sent at `asked`."""
        self._renewed = asked

    def lost(self, now: float) -> bool:
        """Returns whether this candidate led, and can be sure of it no more."""
        return self._renewed is not None and now - self._renewed >= RENEW_SECONDS


class Elector:
    """Runs an election over the Lease `name` of a namespace."""

    def __init__(
        self,
        client: AsyncClient,
        namespace: str,
        name: str,
        identity: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._clock = clock
        self._election = Election(identity)
        self._transitions = 0

    async def win(self) -> None:
        """Returns when this candidate leads."""
        said = ""
        while not self._election.leads:
            sentence = await self._round()
            if sentence and sentence != said:
                log.info("waits to lead: %s", sentence)
                said = sentence
            if not self._election.leads:
                await asyncio.sleep(RETRY_SECONDS)
        log.info("%s leads", self._identity)

    async def hold(self) -> str:
        """Renews the Lease until that fails for too long; returns why."""
        why = "another one has taken the Lease"
        while not self._election.lost(self._clock()):
            await asyncio.sleep(RETRY_SECONDS)
            why = await self._round() or why
        return why

    async def give_up(self) -> None:
        """Frees the Lease, so that another candidate need not wait for its time."""
        if not self._election.leads:
            return
        try:
            lease = await self._client.get(Lease, self._name, namespace=self._namespace)
            if lease.spec is not None and lease.spec.holderIdentity == self._identity:
                lease.spec.holderIdentity = ""
                await self._client.replace(lease)
        except CALL_ERRORS as error:
            log.info("the Lease stays until its time is over: %s", sentence_of(error))

    async def _round(self) -> str:
        """Looks at the Lease, and writes it if it may. Returns why it is not ours now, or ""."""
        now = self._clock()
        try:
            why = await asyncio.wait_for(self._try(now), RENEW_SECONDS / 2)
        except asyncio.TimeoutError:
            return "the API server did not answer in time"
        except CALL_ERRORS as error:
            return "" if code_of(error) == _CONFLICT else sentence_of(error)
        if not why:
            self._election.wrote(now)
        return why

    async def _try(self, now: float) -> str:
        lease = await self._read()
        record = None if lease is None else record_of(lease)
        if not self._election.may_write(record, now):
            return f"{record.holder if record else 'nobody'} leads"
        await self._write(lease)
        return ""

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(Lease, self._name, namespace=self._namespace)
        except CALL_ERRORS as error:
            if code_of(error) == _NOT_FOUND:
                return None
            raise

    async def _write(self, lease: Lease | None) -> None:
        stamp = datetime.now(timezone.utc)
        if lease is None:
            spec = LeaseSpec(
                holderIdentity=self._identity,
                leaseDurationSeconds=round(LEASE_SECONDS),
                acquireTime=stamp,
                renewTime=stamp,
                leaseTransitions=0,
            )
            metadata = ObjectMeta(name=self._name, namespace=self._namespace)
            await self._client.create(Lease(metadata=metadata, spec=spec))
            return
        spec = lease.spec or LeaseSpec()
        if spec.holderIdentity != self._identity:
            spec.acquireTime = stamp
            spec.leaseTransitions = (spec.leaseTransitions or 0) + 1
        spec.holderIdentity, spec.renewTime = self._identity, stamp
        spec.leaseDurationSeconds = round(LEASE_SECONDS)
        lease.spec = spec
        # The version in the metadata has the server refuse if another one was quicker.
        await self._client.replace(lease)


def record_of(lease: Any) -> Record:
    """Returns what a Lease of Kubernetes says."""
    spec = lease.spec or LeaseSpec()
    seconds = float(spec.leaseDurationSeconds or LEASE_SECONDS)
    return Record(spec.holderIdentity or "", lease.metadata.resourceVersion, seconds)
