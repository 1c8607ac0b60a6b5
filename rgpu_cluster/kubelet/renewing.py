"""Renews the credentials of prepared claims before they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import TYPE_CHECKING

from rgpu_cluster.kubelet.errors import PrepareError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rgpu_cluster.kubelet.preparing import Preparer
    from rgpu_cluster.kubelet.shelf import Held, Prepared

log = logging.getLogger("rgpu.node-plugin")

# A credential is renewed after half of its time; one that seems to have no time, not sooner than
# this.
_LEAST_SECONDS = 1.0
# A renewal that fails is tried again after this time.
_AGAIN_SECONDS = 10.0
_LONGEST_WAIT = 3600.0


def due(held: Held) -> float:
    """Returns when a credential is renewed, in seconds since 1970."""
    return held.asked + max((held.credential.expires - held.asked) / 2, _LEAST_SECONDS)


class Renewer:
    """`run` renews until it is cancelled. now: the time in seconds since 1970."""

    def __init__(self, preparer: Preparer, now: Callable[[], float] = time.time) -> None:
        self._preparer = preparer
        self._now = now
        self._changed = asyncio.Event()
        # Claim and pool -> when a renewal that has failed is tried again.
        self._again: dict[tuple[str, str], float] = {}

    def changed(self) -> None:
        """Notes that a claim has been prepared."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            await self.round()
            wait = min(self._times(), default=self._now() + _LONGEST_WAIT) - self._now()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(max(wait, 0), _LONGEST_WAIT))

    async def round(self) -> None:
        """Renews all credentials that are due now."""
        now = self._now()
        everything = [(uid, held) for uid, held in self._all()]
        late = [(uid, held.pool) for uid, held in everything if self._when(uid, held) <= now]
        there = {(uid, held.pool) for uid, held in everything}
        self._again = {what: when for what, when in self._again.items() if what in there}
        await asyncio.gather(*(self._renew(uid, pool) for uid, pool in late))

    async def _renew(self, uid: str, pool: str) -> None:
        try:
            await self._preparer.renew(uid, pool)
            self._again.pop((uid, pool), None)
        except PrepareError as error:
            self._again[uid, pool] = self._now() + _AGAIN_SECONDS
            log.warning("the credential of claim %s stays the old one: %s", uid, error)
        except Exception:
            # A defect for one claim must not end the renewals of all.
            self._again[uid, pool] = self._now() + _AGAIN_SECONDS
            log.exception("the credential of claim %s stays the old one", uid)

    def _all(self) -> Iterable[tuple[str, Held]]:
        prepared: Iterable[tuple[str, Prepared]] = self._preparer.prepared.items()
        return ((uid, held) for uid, one in prepared for held in one.held if held.agent)

    def _when(self, uid: str, held: Held) -> float:
        return self._again.get((uid, held.pool), due(held))

    def _times(self) -> list[float]:
        return [self._when(uid, held) for uid, held in self._all()]
