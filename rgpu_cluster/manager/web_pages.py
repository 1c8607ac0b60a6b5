"""What the page of a manager shows, the whole cluster, and its operators' orders.

All of it goes through the service for clients, which checks the caller.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.card import CardId
from rgpu_cluster.manager.draining import drain_order
from rgpu_cluster.manager.web_rows import (
    card_row,
    event_row,
    explanation_row,
    gone_row,
    node_row,
    path_row,
    reservation_row,
    waiting_row,
)
from rgpu_common.v1 import cluster_pb2
from rgpu_server.web.calls import CallRefusedError, OwnCall
from rgpu_server.web.words import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rgpu_cluster.manager.clients import ManagerService
    from rgpu_cluster.manager.shell import Shell
    from rgpu_server.identity.guard import Known
    from rgpu_server.web.changes import State

# So many events are shown, the newest.
_MOST_EVENTS = 400
# How much the moment of a measurement may seem to move: its age is told in whole seconds.
_SAME_SECONDS = 2


class ClusterPages:
    """One manager (`rgpu_server.web.site.Pages`)."""

    kind = "manager"

    def __init__(self, service: ManagerService, shell: Shell) -> None:
        self.title = socket.gethostname()
        self._service = service
        self._shell = shell
        # When the paths were measured.
        self._measured: dict[str, int] = {}

    async def states(self, callers: Sequence[Known]) -> Sequence[State]:
        """Returns the tables of the page."""
        states = []
        for caller in callers:
            await asyncio.sleep(0)  # The manager's other work goes on between two callers.
            states.append(await self._state(caller))
        return states

    async def _state(self, caller: Known) -> State:
        call: Any = OwnCall(caller.identity)
        at = self._shell.wall_clock()
        pool = await self._service.GetPool(cluster_pb2.GetPoolRequest(), call)
        told = await self._service.ListEvents(cluster_pb2.ListEventsRequest(), call)
        cards = {
            f"{node.name}/{card.ordinal}": card_row(
                node.name, card, self._shell.uses.of(CardId(node.name, card.ordinal)), at
            )
            for node in (*pool.nodes, *pool.gone)
            for card in node.cards
        }
        nodes = {node.name: node_row(node) for node in pool.nodes}
        nodes |= {node.name: gone_row(node, at) for node in pool.gone}
        return {
            "cluster": {"": {"at": at, "others_waiting": pool.others_waiting}},
            "nodes": nodes,
            "cards": cards,
            "waiting": {one.request_id: waiting_row(one, at) for one in pool.waiting},
            "reservations": {
                f"{one.request_id} {one.node}": reservation_row(one, at)
                for one in pool.reservations
            },
            "paths": self._paths(pool, at),
            "events": {str(one.number): event_row(one) for one in told.events[-_MOST_EVENTS:]},
        }

    def _paths(self, pool: cluster_pb2.GetPoolResponse, at: float) -> dict[str, dict[str, Any]]:
        rows = {}
        for path in pool.paths:
            row = path_row(path)
            key = f"{row['client']}\n{row['server']}"
            moment = round(at - path.age_seconds)
            if abs(self._measured.get(key, 0) - moment) > _SAME_SECONDS:
                self._measured[key] = moment
            rows[key] = {**row, "measured_at": self._measured[key]}
        self._measured = {key: moment for key, moment in self._measured.items() if key in rows}
        return rows

    async def ask(self, caller: Known, what: str, query: Mapping[str, str]) -> Any:
        """Answers `explain`: how a request was decided."""
        if what != "explain":
            raise CallRefusedError(404, f"there is no question {what[:64]!r}")
        call: Any = OwnCall(caller.identity)
        message = cluster_pb2.ExplainRequest(request_id=needed(query, "request"))
        answer = await self._service.Explain(message, call)
        return explanation_row(answer, self._shell.wall_clock())

    async def order(self, caller: Known, order: str, body: Mapping[str, Any]) -> str:
        """Takes a request back, which ends its leases, releases a reservation, or drains a node."""
        call: Any = OwnCall(caller.identity)
        if order in ("drain", "undrain"):
            return await drain_order(self._shell, order, body, caller.identity)
        if order not in ("withdraw", "release"):
            raise CallRefusedError(404, f"there is no order {order[:64]!r}")
        request = needed(body, "request")
        if order == "withdraw":
            await self._service.Withdraw(cluster_pb2.WithdrawRequest(request_id=request), call)
            return f"{request} was taken back"
        await self._service.Release(cluster_pb2.ReservationRequest(reservation=request), call)
        return f"reservation {request} was released"
