"""Answers about reservations: where one is, and its release."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, NoReturn

import grpc

from rgpu_cluster.manager.reservations import Reservation
from rgpu_common.v1 import cluster_pb2
from rgpu_server.core.model import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from grpc.aio import ServicerContext as Context

    from rgpu_cluster.manager.door import Door
    from rgpu_cluster.manager.shell import Shell
    from rgpu_server.core.identity import Identity

_MOST_TEXT = 128
_END_SECONDS = 5.0


class Reserving:
    """Only the tenant that made a reservation uses it; it or an operator releases it."""

    def __init__(self, shell: Shell, door: Door) -> None:
        self._shell = shell
        self._door = door

    async def find(
        self, message: cluster_pb2.ReservationRequest, context: Context
    ) -> cluster_pb2.PlacedAt:
        """Says where a program of the reservation's tenant finds it."""
        identity = await self._door.admit(context)
        one = await self._of_tenant(identity, message, context)
        nodes = {name: self._shell.core.pool.node(name) for name in one.parts}
        silent = [name for name, node in nodes.items() if node is None]
        if silent or one.missing:
            where = f"is on node {silent[0]}, which is silent" if silent else _lacks(one)
            sentence = (
                f"reservation {one.id} {where}: if the node comes back in time the reservation is "
                "still there; else make another one with `rgpu reserve`"
            )
            await _abort(grpc.StatusCode.FAILED_PRECONDITION, sentence, context)
        first, *others = [
            cluster_pb2.PlacedOn(node=name, address=node.address, ordinals=one.parts[name].ordinals)
            for name, node in nodes.items()
            if node is not None
        ]
        return cluster_pb2.PlacedAt(
            node=first.node,
            address=first.address,
            ordinals=first.ordinals,
            others=others,
            reason="reserved",
            tenant=one.tenant,
            request_id=one.id,
        )

    async def release(
        self, message: cluster_pb2.ReservationRequest, context: Context
    ) -> cluster_pb2.ReleaseResponse:
        """Ends a reservation, and the programs in it."""
        identity = await self._door.admit(context)
        text = message.reservation[:_MOST_TEXT]
        one = self._shell.reservations.get(text)
        if one is None or not (identity.operator and not message.tenant):
            one = await self._of_tenant(identity, message, context)
        away = [name for name in one.parts if name not in self._shell.links]
        if len(away) == len(one.parts):
            sentence = (
                f"reservation {one.id} is on node {away[0]}, which is not connected now: try "
                "again later, or leave it, for it ends at its time"
            )
            await _abort(grpc.StatusCode.FAILED_PRECONDITION, sentence, context)
        self._shell.reservations.released(one.id)
        self._shell.withdraw(one.id, "it was released")
        await self._gone(one.id)
        return cluster_pb2.ReleaseResponse(request_id=one.id)

    async def _gone(self, reservation: str) -> None:
        """Waits until the server says that the reservation has ended, so that its room is free."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._shell.reservations.ended(reservation), _END_SECONDS)

    async def _of_tenant(
        self, identity: Identity, message: cluster_pb2.ReservationRequest, context: Context
    ) -> Reservation:
        """Another tenant's reservation is answered for as if there were none."""
        tenant = identity.speaks_for(message.tenant)
        if isinstance(tenant, Refusal):
            await _abort(grpc.StatusCode.PERMISSION_DENIED, tenant.sentence, context)
        text, known = message.reservation[:_MOST_TEXT], self._shell.reservations
        found = known.find(text, tenant)
        if isinstance(found, Reservation):
            return found
        sentence = found or known.why_none(text, tenant, time.monotonic())
        await _abort(grpc.StatusCode.NOT_FOUND, sentence, context)

    def shown(self, sees: Callable[[str], bool]) -> Iterable[cluster_pb2.PoolReservation]:
        """Yields the reservations of the tenants that the caller sees, a row for each node."""
        now, pool = time.monotonic(), self._shell.core.pool
        for one in self._shell.reservations:
            for name, part in one.parts.items() if sees(one.tenant) else ():
                yield cluster_pb2.PoolReservation(
                    request_id=one.id,
                    tenant=one.tenant,
                    node=name,
                    ordinals=part.ordinals,
                    share_ppm=one.share_ppm,
                    memory_bytes=one.memory_bytes,
                    whole=one.whole,
                    left_seconds=max(part.until - now, 0.0),
                    connected=pool.node(name) is not None and name in self._shell.links,
                )


def _lacks(one: Reservation) -> str:
    there = ", ".join(one.parts)
    return f"has {one.missing} of its {one.cards} cards on a node other than {there} that is away"


async def _abort(code: grpc.StatusCode, sentence: str, context: Context) -> NoReturn:
    await context.abort(code, sentence)
    raise AssertionError("abort does not return")
