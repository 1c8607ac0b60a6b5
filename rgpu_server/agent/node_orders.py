"""The service for the agent of a Kubernetes node, which runs beside this server. For operators."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, NoReturn

import grpc

from rgpu_common.clusters import is_request_id
from rgpu_common.errors import UsageError
from rgpu_common.v1 import agent_pb2, orders_pb2, orders_pb2_grpc
from rgpu_server.agent.orders import ground_of
from rgpu_server.identity.guard import known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from grpc.aio import ServicerContext as Context

    from rgpu_server.agent.membership import Agency
    from rgpu_server.identity.claim_access import ClaimAccess

# What changes without an event, such as network devices, is looked at so often.
_LOOK_SECONDS = 5.0
# Changes that come together are reported together.
_GATHER_SECONDS = 0.02
_MOST_REQUESTS = 64 * 128
_MOST_PODS, _MOST_UID = 1024, 64


class NodeOrderService(orders_pb2_grpc.NodeOrderServiceServicer):
    """claims: what notes the pods of requests; None: pods' own tokens are not accepted here."""

    def __init__(self, agency: Agency, claims: ClaimAccess | None) -> None:
        self._agency = agency
        self._claims = claims

    async def WatchReport(
        self, request: orders_pb2.WatchReportRequest, context: Context
    ) -> AsyncIterator[agent_pb2.NodeReport]:
        await _check_operator(context)
        try:
            reports = self._agency.reports
        except UsageError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        changed = asyncio.Event()
        listeners = self._agency.conductor.listeners
        listeners.append(changed.set)
        try:
            said, generation = None, 0
            while True:
                changed.clear()
                now = reports.look()
                now.paths.extend(self._agency.measured.rows())
                if now != said:
                    said = agent_pb2.NodeReport()
                    said.CopyFrom(now)
                    generation += 1
                    now.generation = generation
                    reports.stamp(now)
                    yield now
                try:
                    await asyncio.wait_for(changed.wait(), _LOOK_SECONDS)
                    await asyncio.sleep(_GATHER_SECONDS)
                except asyncio.TimeoutError:
                    pass
        finally:
            listeners.remove(changed.set)

    async def Grant(self, order: agent_pb2.GrantOrder, context: Context) -> agent_pb2.GrantAnswer:
        await _check_operator(context)
        refusal = self._agency.orders.grant(order, any_attempt=True)
        answer = agent_pb2.GrantAnswer(
            request_id=order.request_id, attempt=order.attempt, granted=refusal is None
        )
        if refusal is not None:
            answer.sentence, answer.ground = refusal.sentence, ground_of(refusal)
        return answer

    async def Revoke(
        self, order: agent_pb2.RevokeOrder, context: Context
    ) -> agent_pb2.RevokeAnswer:
        await _check_operator(context)
        if self._claims is not None:
            self._claims.forget(order.request_id)
        # Attempts of agents are above all of the manager's, which may grant to the claim again.
        self._agency.orders.revoke(order.request_id, order.attempt, order.sentence, remember=False)
        return agent_pb2.RevokeAnswer(request_id=order.request_id, attempt=order.attempt)

    async def Keep(
        self, message: orders_pb2.KeepRequest, context: Context
    ) -> orders_pb2.KeepResponse:
        await _check_operator(context)
        wrong = _wrong(message)
        if wrong:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, wrong)
        unknown = []
        for one in message.requests:
            there = self._agency.orders.keep(one.request_id, one.ttl_seconds)
            if not there:
                unknown.append(one.request_id)
            if self._claims is not None and there:
                self._claims.allow(one.request_id, one.pods)
            elif self._claims is not None:
                self._claims.forget(one.request_id)
        return orders_pb2.KeepResponse(unknown=unknown)


def _wrong(message: orders_pb2.KeepRequest) -> str:
    """Returns what no agent of this release would ask, else ""."""
    if len(message.requests) > _MOST_REQUESTS:
        return f"at most {_MOST_REQUESTS} requests are kept by one call"
    for one in message.requests:
        if not is_request_id(one.request_id):
            return f"{one.request_id[:_MOST_UID]!r} is no id of a request"
        if not (math.isfinite(one.ttl_seconds) and one.ttl_seconds > 0):
            return f"request {one.request_id} is kept for more than 0 s"
        if len(one.pods) > _MOST_PODS or any(len(pod) > _MOST_UID for pod in one.pods):
            return f"request {one.request_id} has at most {_MOST_PODS} pods, each with its UID"
    return ""


async def _check_operator(context: Context) -> None:
    if not known().identity.operator:
        await _refuse(context)


async def _refuse(context: Context) -> NoReturn:
    sentence = (
        "only an operator may order leases: run `rgpu agent-node` beside the server as its own "
        "user, over its Unix socket"
    )
    await context.abort(grpc.StatusCode.PERMISSION_DENIED, sentence)
    raise AssertionError("abort does not return")
