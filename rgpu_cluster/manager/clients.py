"""The service for clients: requests, explanations, the pool, and what has happened."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NoReturn

import grpc

from rgpu_cluster.core import events as on
from rgpu_cluster.core.errors import PlacementError
from rgpu_cluster.core.line import gang_key
from rgpu_cluster.core.request import describe
from rgpu_cluster.manager.followers import ANOTHER, CROWDED_OUT
from rgpu_cluster.manager.reading import request_of
from rgpu_cluster.manager.reserving import Reserving
from rgpu_cluster.manager.telling import (
    COME_SECONDS,
    explanation,
    gone_nodes,
    pool_nodes,
    pool_paths,
)
from rgpu_cluster.manager.tickets import RENEW_SECONDS
from rgpu_common import release
from rgpu_common.clusters import begins_id, is_node_name, is_request_id
from rgpu_common.texts import may_be
from rgpu_common.v1 import cluster_pb2, cluster_pb2_grpc
from rgpu_server.core.model import Refusal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from grpc.aio import ServicerContext as Context

    from rgpu_cluster.core.request import Request
    from rgpu_cluster.manager.door import Door
    from rgpu_cluster.manager.followers import Follower
    from rgpu_cluster.manager.nodes import AgentService
    from rgpu_cluster.manager.shell import Shell
    from rgpu_server.core.identity import Identity

NS = 1_000_000_000
_FINAL = ("placed", "denied")
# How the stream of a client ends whose place another one has, as `Follower.why_over` says.
_OVER = {
    ANOTHER: grpc.StatusCode.ABORTED,
    CROWDED_OUT: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class ManagerService(cluster_pb2_grpc.ManagerServiceServicer):
    def __init__(self, shell: Shell, agents: AgentService, door: Door) -> None:
        self._shell = shell
        self._agents = agents
        self._door = door
        self._reserving = Reserving(shell, door)

    async def Submit(
        self, message: cluster_pb2.SubmitRequest, context: Context
    ) -> AsyncIterator[cluster_pb2.SubmitResponse]:
        identity = await self._door.admit(context)
        tenant = identity.speaks_for(message.tenant)
        if isinstance(tenant, Refusal):
            await _abort(grpc.StatusCode.PERMISSION_DENIED, tenant.sentence, context)
        try:
            request = request_of(message, tenant, *self._place(message.place))
        except PlacementError as error:
            await _abort(grpc.StatusCode.INVALID_ARGUMENT, str(error), context)
        await self._check_follower(request, identity, context)
        shell, number = self._shell, request.id
        follower = shell.followers.follow(number, tenant, operator=identity.operator)
        shell.stay(number)
        final = placed = False
        try:
            self._ask(request, message)
            while not final:
                state = await self._next(follower, number)
                if state is None:
                    code = _OVER[follower.why_over]
                    await _abort(code, follower.why_over, context)
                final = state.WhichOneof("state") in _FINAL
                placed = state.WhichOneof("state") == "placed"
                yield state
            if placed and message.stays:
                await follower.replaced(COME_SECONDS)
        finally:
            if shell.followers.leave(number, follower):
                if not final:
                    shell.linger(number)
                elif placed and message.stays and not follower.why_over:
                    shell.feed(on.Left(number))

    def _ask(self, request: Request, message: cluster_pb2.SubmitRequest) -> None:
        waited = self._shell.waited(request.id, request.tenant, message.ticket)
        gang = gang_key(request.tenant, message.gang)
        size = message.gang_size or 1
        event = on.Asked(request, message.wait, round(waited * NS), gang, size)
        self._shell.feed(event)
        entry = self._shell.core.line.get(request.id)
        if entry is not None and entry.told:
            state = self._shell.in_line(request.id, entry.told)
            self._shell.followers.tell(request.id, state)

    async def _next(self, follower: Follower, request: str) -> cluster_pb2.SubmitResponse | None:
        """As `Follower.next`, and gives a request in line a new ticket from time to time."""
        while True:
            state = asyncio.ensure_future(follower.next())
            try:
                if (await asyncio.wait({state}, timeout=RENEW_SECONDS))[0]:
                    return state.result()
            finally:
                state.cancel()
            entry = self._shell.core.line.get(request)
            if entry is not None and entry.told:
                return self._shell.in_line(request, entry.told)

    async def _check_follower(self, request: Request, identity: Identity, context: Context) -> None:
        owner = self._shell.owner(request.id)
        if owner is not None and owner != request.tenant:
            sentence = f"request {request.id} belongs to another tenant; choose another id"
            await _abort(grpc.StatusCode.PERMISSION_DENIED, sentence, context)
        sentence = self._shell.followers.why_not(
            request.id, request.tenant, operator=identity.operator
        )
        if sentence:
            await _abort(grpc.StatusCode.RESOURCE_EXHAUSTED, sentence, context)

    def _place(self, place: cluster_pb2.ProgramPlace) -> tuple[str, str]:
        """Returns the node on which a program runs, and its rack; "" if it is on none."""
        pool = self._shell.core.pool
        name = place.node if is_node_name(place.node) else ""
        if not name and place.host:
            here = [n for n, link in self._agents.links.items() if link.host == bytes(place.host)]
            # Several servers on one machine: the client has to say which one it means.
            name = here[0] if len(here) == 1 else ""
        node = pool.node(name) if name else None
        rack = place.rack if is_node_name(place.rack) else ""
        return ("", rack) if node is None else (name, rack or node.rack)

    async def Withdraw(
        self, message: cluster_pb2.WithdrawRequest, context: Context
    ) -> cluster_pb2.WithdrawResponse:
        identity = await self._door.admit(context)
        await self._check_known(message.request_id, identity, context)
        if message.cancelled:
            self._shell.cancel(message.request_id)
        else:
            self._shell.withdraw(message.request_id, "its client took it back")
        return cluster_pb2.WithdrawResponse()

    async def Explain(
        self, message: cluster_pb2.ExplainRequest, context: Context
    ) -> cluster_pb2.ExplainResponse:
        identity = await self._door.admit(context)
        request = await self._meant(message.request_id, identity, context)
        decided = self._shell.ledger.decided(request)
        state = self._shell.state(request)
        if decided is None:
            sentence = "this manager has not decided it: it was started later, or found no reason"
            return cluster_pb2.ExplainResponse(request_id=request, state=state, sentence=sentence)
        answer = explanation(decided.decision)
        answer.asked, answer.state = describe(decided.request), state
        answer.age_seconds = max(self._shell.wall_clock() - decided.at, 0.0)
        answer.attempt = decided.attempt
        answer.request_id = request
        answer.gives.extend(self._shell.gives(request, identity.sees))
        return answer

    async def _meant(self, text: str, identity: Identity, context: Context) -> str:
        """Returns the id of the request that the caller means: by its id, by its name, or by how
        its id begins.
        """
        if is_request_id(text) and self._shell.owner(text) is not None:
            await self._check_known(text, identity, context)
            return text
        seen = [
            (one, name) for one, tenant, name in self._shell.requests() if identity.sees(tenant)
        ]
        rules: tuple[Callable[[str, str], bool], ...] = (
            lambda one, name: text in (one, name),
            lambda one, _: begins_id(one, text),
        )
        for rule in rules:
            found = [one for one, name in seen if text and rule(one, name)]
            if len(found) == 1:
                return found[0]
            if found:
                sentence = may_be(text[:64], found)
                await _abort(grpc.StatusCode.INVALID_ARGUMENT, sentence, context)
        await self._check_known(text, identity, context)
        return text

    async def _check_known(self, request: str, identity: Identity, context: Context) -> None:
        """Answers for another tenant's request as if there were none."""
        owner = self._shell.owner(request) if is_request_id(request) else None
        decided = self._shell.ledger.decided(request)
        if owner is None and decided is not None:
            owner = decided.request.tenant
        if owner is None or not identity.sees(owner):
            sentence = (
                f"the manager knows no request {request[:64]!r}; `rgpu pool` lists those that wait "
                "and those that have cards"
            )
            await _abort(grpc.StatusCode.NOT_FOUND, sentence, context)

    async def FindReservation(
        self, message: cluster_pb2.ReservationRequest, context: Context
    ) -> cluster_pb2.PlacedAt:
        return await self._reserving.find(message, context)

    async def Release(
        self, message: cluster_pb2.ReservationRequest, context: Context
    ) -> cluster_pb2.ReleaseResponse:
        return await self._reserving.release(message, context)

    async def GetPool(
        self, message: cluster_pb2.GetPoolRequest, context: Context
    ) -> cluster_pb2.GetPoolResponse:
        identity = await self._door.admit(context)
        core, links = self._shell.core, self._agents.links
        waiting = [entry for entry in core.line if identity.sees(entry.request.tenant)]
        now_ns = core.now_ns
        return cluster_pb2.GetPoolResponse(
            nodes=pool_nodes(core.pool, identity.sees, links.__contains__, self._ends_in),
            waiting=[
                cluster_pb2.PoolWaiting(
                    request_id=entry.request.id,
                    tenant=entry.request.tenant,
                    asked=describe(entry.request),
                    waited_seconds=max(now_ns - entry.since_ns, 0) / NS,
                    sentence=self._shell.why_it_waits(entry),
                    name=entry.request.name,
                    gang=entry.gang.rpartition("\n")[2],
                )
                for entry in waiting
            ],
            others_waiting=len(core.line) - len(waiting),
            paths=pool_paths(core.paths),
            release=release(),
            reservations=self._reserving.shown(identity.sees),
            gone=gone_nodes(core.gone, identity.sees, now_ns),
        )

    def _ends_in(self, lease: str) -> float | None:
        end_ns = self._shell.core.relief.end_of(lease)
        return None if end_ns is None else max(end_ns - self._shell.core.now_ns, 0) / NS

    async def ListEvents(
        self, message: cluster_pb2.ListEventsRequest, context: Context
    ) -> cluster_pb2.ListEventsResponse:
        identity = await self._door.admit(context)
        return cluster_pb2.ListEventsResponse(
            events=[
                cluster_pb2.ClusterEvent(
                    number=event.number,
                    at=event.at,
                    kind=event.kind,
                    node=event.node,
                    request_id=event.request,
                    sentence=event.sentence,
                    name=event.name,
                )
                for event in self._shell.ledger.events(message.after)
                if not event.request or identity.sees(event.tenant)
            ]
        )


async def _abort(code: grpc.StatusCode, sentence: str, context: Context) -> NoReturn:
    await context.abort(code, sentence)
    raise AssertionError("abort does not return")
