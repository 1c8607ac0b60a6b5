"""The streams of the nodes' agents."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from typing import TYPE_CHECKING

from rgpu_cluster.core import events as on
from rgpu_cluster.core.book import Stage
from rgpu_cluster.core.card import CardId
from rgpu_cluster.core.errors import PoolError
from rgpu_cluster.core.node import DRAINING
from rgpu_cluster.core.paths import End
from rgpu_cluster.manager.pace import Pace
from rgpu_cluster.manager.reading import (
    HOST_BYTES,
    SERVER_BYTES,
    figures_of,
    held_of,
    node_name,
    node_of,
)
from rgpu_cluster.manager.telling import grant_order, resize_order
from rgpu_common.texts import one_line
from rgpu_common.units import MAX_BYTES, PPM
from rgpu_common.v1 import agent_pb2

if TYPE_CHECKING:
    from rgpu_cluster.core import actions as do
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.manager.shell import Shell

log = logging.getLogger("rgpu.manager")

_GROUNDS = {
    agent_pb2.GROUND_TENANT: on.Ground.TENANT,
    agent_pb2.GROUND_FORBIDDEN: on.Ground.FORBIDDEN,
}
# Answers are as many as the questions. Reports and heartbeats: an agent gathers changes for 10 ms.
_ANSWERS = ("granted", "revoked", "path", "resized")
_REPORTS_AT_ONCE, _REPORTS_PER_SECOND = 1000, 200.0
_MOST_SENTENCE = 500
# An agent that does not read so many messages is disconnected.
_MOST_UNREAD = 8192
# Nor one that owes so many answers.
_MOST_UNANSWERED = 8192


class NodeLink:
    """One node's stream, once its first report was accepted.

    base: what is added to the agent's generations, so that a new stream's reports are news.
    """

    def __init__(self, shell: Shell, report: agent_pb2.NodeReport, base: int) -> None:
        self.name = node_name(report.name)
        self.server = bytes(report.server)
        self.host = bytes(report.host)
        self._ends = False
        self._shell = shell
        self._base = base
        self._last = 0
        self._outbox: deque[agent_pb2.ManagerMessage] = deque()
        self._wake = asyncio.Event()
        self._grants: set[tuple[str, int]] = set()
        # The same order may go out twice, and has two answers then.
        self._revokes: Counter[tuple[str, int]] = Counter()
        self._resizes: set[tuple[str, int, int, int]] = set()
        # Nodes to which the agent was asked to measure the path. A measurement may last longer than
        # the manager waits until it asks again.
        self._measures: Counter[str] = Counter()
        self._pace = Pace(_REPORTS_AT_ONCE, _REPORTS_PER_SECOND)

    @property
    def generation(self) -> int:
        """The latest generation that the core knows from this stream."""
        return self._base + self._last

    # To the agent (Link)

    def grant(self, action: do.Grant) -> None:
        """Asks the daemon to grant."""
        self._grants.add((action.request.id, action.attempt))
        self._ask(agent_pb2.ManagerMessage(grant=grant_order(action)))

    def revoke(self, action: do.Revoke) -> None:
        """Tells the daemon that a lease ends."""
        order = agent_pb2.RevokeOrder(
            request_id=action.id, attempt=action.attempt, sentence=action.why
        )
        self._order_revoke(order)

    def _order_revoke(self, order: agent_pb2.RevokeOrder) -> None:
        self._revokes[order.request_id, order.attempt] += 1
        self._ask(agent_pb2.ManagerMessage(revoke=order))

    def abandon(self, action: do.Abandon) -> None:
        """Tells the daemon that a client has gone."""
        order = agent_pb2.AbandonOrder(request_id=action.id, attempt=action.attempt)
        self.send(agent_pb2.ManagerMessage(abandon=order))

    def warn(self, request: str, attempt: int, sentence: str, seconds: int | None) -> None:
        """Has the programs of a lease be told something; "": nothing. seconds: until it ends."""
        order = agent_pb2.WarnOrder(
            request_id=request, attempt=attempt, sentence=sentence, ends_seconds=seconds
        )
        self.send(agent_pb2.ManagerMessage(warn=order))

    def resize(self, action: do.Resize) -> None:
        """Tells the daemon how large a lease is now."""
        asked = action.id, action.attempt, action.card.ordinal, action.number
        self._resizes.add(asked)
        self._ask(agent_pb2.ManagerMessage(resize=resize_order(action)))

    def drain(self, *, drain: bool, end_after_seconds: float | None) -> None:
        """Has the server take nothing new, or take new leases again. Its report says whether it
        does.
        """
        order = agent_pb2.DrainOrder(drain=drain, end_after_seconds=end_after_seconds)
        self.send(agent_pb2.ManagerMessage(drain=order))

    def refresh(self) -> None:
        """Asks for a report."""
        self.send(agent_pb2.ManagerMessage(report=agent_pb2.ReportOrder()))

    def measure(self, node: Node) -> None:
        """Asks the agent to measure the path to another node."""
        self._measures[node.name] += 1
        order = agent_pb2.MeasureOrder(
            address=node.address, node=node.name, rack=node.rack, nic=node.nic
        )
        self.send(agent_pb2.ManagerMessage(measure=order))

    def _ask(self, message: agent_pb2.ManagerMessage) -> None:
        """Sends an order that has an answer."""
        if len(self._grants) + len(self._revokes) + len(self._resizes) > _MOST_UNANSWERED:
            self.end()
        self.send(message)

    def send(self, message: agent_pb2.ManagerMessage) -> None:
        """Sends a message when the agent takes it."""
        if len(self._outbox) >= _MOST_UNREAD:
            self.end()
        else:
            self._outbox.append(message)
            self._wake.set()

    def end(self) -> None:
        """Has `next` return None."""
        self._ends = True
        self._wake.set()

    async def next(self) -> agent_pb2.ManagerMessage | None:
        """Waits for a message to send; None: the stream has to end."""
        while not self._outbox and not self._ends:
            self._wake.clear()
            await self._wake.wait()
        return None if self._ends else self._outbox.popleft()

    # From the agent

    def heard(self, message: agent_pb2.AgentMessage) -> None:
        """Takes a message; PoolError if no agent of this release sends it."""
        kind = message.WhichOneof("said")
        if kind not in _ANSWERS and not self._pace.allows(time.monotonic()):
            raise PoolError(f"node {self.name} reports more often than any server does")
        if kind == "report":
            self.reported(message.report)
        elif kind == "heartbeat":
            self._shell.uses.heard(self.name, message.heartbeat.uses)
            self._shell.feed(on.NodeBeat(self.name, self.generation))
        elif kind == "granted":
            self._granted(message.granted)
        elif kind == "revoked":
            self._revoked(message.revoked)
        elif kind == "resized":
            self._resized(message.resized)
        elif kind == "path":
            self._measured(message.path)

    def reported(self, report: agent_pb2.NodeReport) -> None:
        """Takes a report."""
        if report.name != self.name or bytes(report.server) != self.server:
            raise PoolError(f"node {self.name} reported another name; open a stream for each node")
        if report.generation <= self._last:
            raise PoolError(
                f"node {self.name} reported generation {report.generation} after {self._last}; "
                "reports come in order"
            )
        node = node_of(report, self._base + report.generation)
        held = held_of(report)
        self._last = report.generation
        self._note_drain(node)
        self._shell.reservations.heard(self.name, report.leases, time.monotonic())
        self._shell.uses.heard(self.name, report.uses)
        self._shell.feed(on.NodeReported(node, held))

    def _note_drain(self, node: Node) -> None:
        known = self._shell.core.pool.node(node.name)
        before = known is not None and DRAINING in known.taints
        if (DRAINING in node.taints) is not before:
            self._shell.note("undrained" if before else "drained", "", node.name)

    def _granted(self, answer: agent_pb2.GrantAnswer) -> None:
        asked = answer.request_id, answer.attempt
        if asked not in self._grants:
            raise PoolError(f"node {self.name} granted what it was not asked for")
        self._grants.discard(asked)
        if answer.granted:
            self._last = max(self._last, min(answer.generation, self._last + _MOST_UNREAD))
            self._shell.counted["granted"] += 1
            self._shell.feed(on.Granted(*self._of(answer), self.generation))
            return
        sentence = one_line(answer.sentence, _MOST_SENTENCE) or "it gave no reason"
        self._shell.note("refused", sentence, self.name, answer.request_id)
        why = f"node {self.name}: {sentence}"
        ground = _GROUNDS.get(answer.ground, on.Ground.ROOM)
        self._shell.feed(on.GrantFailed(*self._of(answer), why, certain=True, ground=ground))

    def _of(self, answer: agent_pb2.GrantAnswer) -> tuple[str, str, int]:
        return answer.request_id, self.name, answer.attempt

    def _revoked(self, answer: agent_pb2.RevokeAnswer) -> None:
        asked = answer.request_id, answer.attempt
        if asked not in self._revokes:
            raise PoolError(f"node {self.name} revoked what it was not asked to")
        self._revokes[asked] -= 1
        if not self._revokes[asked]:
            del self._revokes[asked]
        self._shell.feed(on.Revoked(answer.request_id, self.name, answer.attempt))

    def _resized(self, answer: agent_pb2.ResizeAnswer) -> None:
        asked = answer.request_id, answer.attempt, answer.ordinal, answer.number
        if asked not in self._resizes:
            raise PoolError(f"node {self.name} resized what it was not asked to")
        if answer.share_ppm > PPM or max(answer.memory_bytes, answer.least_bytes) > MAX_BYTES:
            raise PoolError(f"node {self.name} has a lease that is larger than a card")
        self._resizes.discard(asked)
        self._last = max(self._last, min(answer.generation, self._last + _MOST_UNREAD))
        card = CardId(self.name, answer.ordinal)
        resized = on.Resized(
            answer.request_id, card, answer.attempt, answer.number, answer.share_ppm,
            answer.memory_bytes, answer.least_bytes, self.generation, there=answer.there,
        )  # fmt: skip
        self._shell.resized(resized)

    def _measured(self, path: agent_pb2.PathReport) -> None:
        if path.node not in self._measures:
            raise PoolError(f"node {self.name} measured a path that it was not asked to")
        self._measures[path.node] -= 1
        if not self._measures[path.node]:
            del self._measures[path.node]
        pool = self._shell.core.pool
        here, there = pool.node(self.name), pool.node(path.node)
        if path.error or here is None or there is None:
            why = one_line(path.error, _MOST_SENTENCE) or "gone"
            log.info("the path from %s to %s: %s", self.name, path.node, why)
            return
        ends = End(here.rack, here.nic), End(there.rack, there.nic)
        self._shell.feed(on.PathMeasured(*ends, figures_of(path)))

    # The end

    def catch_up(self) -> None:
        """Says again what an earlier stream may have lost: leases that are to be revoked."""
        for booking in self._shell.core.book.on(self.name):
            if booking.stage is Stage.UNDOING and self.name in booking.waiting_for:
                entry = booking.entry
                self._order_revoke(
                    agent_pb2.RevokeOrder(request_id=entry.request.id, attempt=entry.attempt)
                )

    def cut(self) -> None:
        """Notes that the stream has ended. Whether the daemon has granted is not known."""
        self._shell.feed(on.NodeCut(self.name))
        for request, attempt in sorted(self._grants):
            sentence = f"node {self.name} was cut off while it was asked"
            failed = on.GrantFailed(request, self.name, attempt, sentence, certain=False)
            self._shell.feed(failed)
        self._grants.clear()


def check_identity(report: agent_pb2.NodeReport) -> None:
    """Raises PoolError for a report that names no server."""
    if len(report.server) != SERVER_BYTES or len(report.host) not in (0, HOST_BYTES):
        raise PoolError(f"node {node_name(report.name)} does not say which server it is")


def joined(release: str, heartbeat_seconds: float) -> agent_pb2.ManagerMessage:
    """Returns the answer to an agent's first report."""
    answer = agent_pb2.JoinAnswer(release=release, heartbeat_seconds=heartbeat_seconds)
    return agent_pb2.ManagerMessage(joined=answer)
