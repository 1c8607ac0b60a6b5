"""Carries out what the keeper of the leases wants done."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

import grpc

from rgpu_cluster.kubernetes.agent import daemon
from rgpu_cluster.kubernetes.agent.actions import Action, Annotate, Grant, Revoke, Say
from rgpu_cluster.kubernetes.api import CALL_ERRORS, sentence_of
from rgpu_common.tasks import end
from rgpu_common.turns import TurnPlaces
from rgpu_common.v1 import agent_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from rgpu_cluster.kubernetes.agent.claims import Claims
    from rgpu_cluster.kubernetes.agent.daemon import DaemonLink
    from rgpu_cluster.kubernetes.agent.keeper import Keeper
    from rgpu_common.v1 import orders_pb2

log = logging.getLogger("rgpu.kubernetes")

# Actions under way at once; the others wait for them, and namespaces take turns.
_AT_ONCE = 16
_DEADLINE_SECONDS = 40.0


class Doing:
    """on_change: called when something has come of an action."""

    def __init__(
        self, keeper: Keeper, claims: Claims, link: DaemonLink, on_change: Callable[[], None]
    ) -> None:
        self._keeper = keeper
        self._claims = claims
        self._link = link
        self._on_change = on_change
        self._room = TurnPlaces(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._keeps: asyncio.Task[None] | None = None
        self._said = ""

    def start(self) -> float:
        """Begins all that can be done now; returns in how many seconds to call it again."""
        now = time.monotonic()
        for action in self._keeper.actions(now, time.time()):
            self._spawn(self._guarded(action))
        if self._keeps is None or self._keeps.done():
            request = self._keeper.keeps(now)
            if request is not None:
                self._keeps = self._spawn(self._keep(request))
        due = self._keeper.next_due(now)
        return float("inf") if due is None else due - now

    async def close(self) -> None:
        """Ends what is under way."""
        await end(self._tasks)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("an action for a claim failed", exc_info=task.exception())

    async def _guarded(self, action: Action) -> None:
        """Carries out an action, and tells the keeper if nothing came of it."""
        why, done = "", False
        try:
            async with self._room.place(_namespace(action)):
                await asyncio.wait_for(self._carry_out(action), _DEADLINE_SECONDS)
            done = True
        except asyncio.TimeoutError:
            why = "the API server does not answer in time"
        except CALL_ERRORS as error:
            why = sentence_of(error)
        except grpc.aio.AioRpcError as error:
            why = f"the server: {daemon.sentence_of(error)}"
        finally:
            # Also after a defect, which `_ended` logs, for else the claim would wait for ever.
            if not done:
                self._keeper.failed(action, time.monotonic())
            self._on_change()
        self._say(why)

    def _say(self, why: str) -> None:
        if why and why != self._said:
            log.warning("leases of claims are late: %s", why)
        self._said = why

    async def _carry_out(self, action: Action) -> None:
        match action:
            case Grant():
                await self._grant(action)
            case Revoke():
                await self._revoke(action)
            case Say():
                self._keeper.claim(action.uid, await self._claims.say(action))
                self._keeper.said(action)
            case Annotate():
                await self._annotate(action)

    async def _grant(self, action: Grant) -> None:
        answer = await self._link.grant(action.order)
        self._keeper.granted(action, answer, time.monotonic())
        order = action.order
        if answer.granted:
            log.info("claim %s of %s has its lease", order.request_id, order.tenant)
        else:
            log.info("claim %s of %s: %s", order.request_id, order.tenant, answer.sentence)

    async def _revoke(self, action: Revoke) -> None:
        """Looks at the claim first, because the watch may be behind."""
        self._keeper.claim(action.uid, await self._claims.look(action))
        if not self._keeper.confirmed(action, time.time()):
            self._keeper.dropped(action)
            return
        order = agent_pb2.RevokeOrder(
            request_id=action.uid, attempt=action.attempt, sentence=action.sentence
        )
        await self._link.revoke(order)
        self._keeper.revoked(action)
        log.info("the lease of claim %s is ended: %s", action.uid, action.sentence)

    async def _annotate(self, action: Annotate) -> None:
        await self._claims.annotate(action)
        self._keeper.annotated(action)

    async def _keep(self, request: orders_pb2.KeepRequest) -> None:
        try:
            unknown = await self._link.keep(request)
        except grpc.aio.AioRpcError as error:
            self._keeper.not_kept(request, time.monotonic())
            self._say(f"the server: {daemon.sentence_of(error)}")
        else:
            self._keeper.kept(unknown, time.monotonic())
        self._on_change()


def _namespace(action: Action) -> str:
    return action.order.tenant if isinstance(action, Grant) else action.namespace
