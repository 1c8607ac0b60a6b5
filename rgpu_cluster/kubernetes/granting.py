"""Leases of a manager's pool for the scheduler extender."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from rgpu_cluster.core import actions as do
from rgpu_cluster.core import events as on
from rgpu_cluster.core.errors import RequestError
from rgpu_cluster.kubernetes.allocation import places_of, told
from rgpu_cluster.kubernetes.authority import with_authority
from rgpu_cluster.manager.telling import in_short

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_cluster.core.actions import Action
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.manager.shell import Shell

GRANT_SECONDS = 8.0


class ManagerCluster:
    """The pool of a manager that runs in this process, as the extender needs it."""

    def __init__(self, shell: Shell, seconds: float = GRANT_SECONDS) -> None:
        self._shell = shell
        self._seconds = seconds
        self._waiting: dict[str, asyncio.Future[Action]] = {}
        shell.listeners.append(self._heard)

    @property
    def pool(self) -> Pool:
        return self._shell.core.pool

    @property
    def paths(self) -> Paths:
        return self._shell.core.paths

    async def grant(self, request: Request) -> Mapping[str, str]:
        """Asks for cards and waits until all daemons have granted; see `binding.Cluster`."""
        booking = self._shell.core.book.get(request.id)
        if booking is None or booking.entry.request != request:
            if self._shell.state(request.id) != "gone":
                self._shell.withdraw(request.id, "its pod goes to another node")
            await self._ask(request)
        booking = self._shell.core.book.get(request.id)
        places = booking and places_of(booking.decision.chosen.cards, self.pool)
        if not places:
            raise RequestError(
                "the node of the pod's card has just gone; the scheduler tries again"
            )
        return with_authority(told(request.id, places))

    async def _ask(self, request: Request) -> None:
        heard: asyncio.Future[Action] = asyncio.get_running_loop().create_future()
        self._waiting[request.id] = heard
        try:
            self._shell.feed(on.Asked(request))
            action = await asyncio.wait_for(heard, self._seconds)
        except asyncio.TimeoutError:
            raise RequestError(
                f"no daemon granted the pod's card within {self._seconds:g} s; the scheduler tries "
                "again"
            ) from None
        finally:
            self._waiting.pop(request.id, None)
        if isinstance(action, do.Denied):
            # The sentence of a denial is for `rgpu run`.
            refusal = action.refusal
            raise RequestError(action.why if refusal is None else in_short(refusal))

    def release(self, request: str) -> None:
        """Ends the leases of a request."""
        if self._shell.state(request) not in ("gone", "ending"):
            self._shell.withdraw(request, "its pod is not bound, or has ended")

    def _heard(self, action: Action) -> None:
        if isinstance(action, do.Placed | do.Denied):
            heard = self._waiting.get(action.id)
            if heard is not None and not heard.done():
                heard.set_result(action)
