"""Feeds events to the core, and carries out what comes out, in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Protocol

from rgpu_cluster.core import actions as do
from rgpu_cluster.core import events as on
from rgpu_cluster.core.book import Stage
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.probing import Probing
from rgpu_cluster.manager.earlier_paths import EarlierPaths
from rgpu_cluster.manager.followers import Followers
from rgpu_cluster.manager.ledger import Decided, Ledger
from rgpu_cluster.manager.reservations import Reservations
from rgpu_cluster.manager.telling import given, in_short, placed_message
from rgpu_cluster.manager.tickets import Tickets
from rgpu_cluster.manager.uses import Uses
from rgpu_common.units import counted, format_bytes, format_duration, format_share
from rgpu_common.v1 import cluster_pb2
from rgpu_server.observe.refusals import Refusals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rgpu_cluster.core.line import Entry
    from rgpu_cluster.core.manager import Manager
    from rgpu_cluster.core.node import Node

log = logging.getLogger("rgpu.manager")

TICK_SECONDS = 1.0
_STATES = {
    Stage.CLEARING: "making room",
    Stage.PENDING: "granting",
    Stage.PLACED: "placed",
    Stage.UNDOING: "ending",
}
# What a tenant can have happen again and again at no cost: the log has some of it.
_COSTLESS = ("denied", "withdrawn")
# A request that is in line and that nobody follows is withdrawn after so long.
LINGER_SECONDS = 15.0
# One that has cards of which nobody has heard: its client asks again within moments, or is gone.
UNHEARD_SECONDS = 2.0


class Link(Protocol):
    """The connection to a node's agent."""

    def grant(self, action: do.Grant) -> None: ...

    def revoke(self, action: do.Revoke) -> None: ...

    def abandon(self, action: do.Abandon) -> None: ...

    def warn(self, request: str, attempt: int, sentence: str, seconds: int | None) -> None: ...

    def resize(self, action: do.Resize) -> None: ...

    def drain(self, *, drain: bool, end_after_seconds: float | None) -> None: ...

    def refresh(self) -> None: ...

    def measure(self, node: Node) -> None: ...


class Shell:
    """The core, with all that it works on.

    links: the nodes that are connected. counted: how often something has happened, for the metrics.
    """

    def __init__(
        self,
        manager: Manager,
        clock: Callable[[], int] = time.monotonic_ns,
        wall_clock: Callable[[], float] = time.time,
        tickets: Tickets | None = None,
    ) -> None:
        self.core = manager
        self.links: dict[str, Link] = {}
        self.followers = Followers()
        self.ledger = Ledger()
        self.reservations = Reservations()
        self.uses = Uses()
        self.earlier_paths = EarlierPaths()
        self.counted: Counter[str] = Counter()
        # Told of each action after it was carried out.
        self.listeners: list[Callable[[do.Action], None]] = []
        self._clock = clock
        self.wall_clock = wall_clock
        self._tickets = tickets or Tickets()
        self._refusals = Refusals()
        self._events: deque[on.Event] = deque()
        self._feeding = False
        self._probing = Probing()
        # Leases whose end was announced to their servers.
        self._warned: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._lingering: dict[str, asyncio.TimerHandle] = {}
        # One row per action type: the method that carries it out.
        self._doers: dict[type[Any], Callable[[Any], None]] = {
            do.Grant: self._grant,
            do.Revoke: self._revoke,
            do.Abandon: self._abandon,
            do.Resize: self._resize,
            do.Announced: self._announced,
            do.Placed: self._placed,
            do.Waiting: self._waiting,
            do.Denied: self._denied,
            do.Lost: self._lost,
            do.Ended: self._ended,
            do.Refresh: self._refresh,
        }

    def start(self) -> None:
        """Begins to look at the clock every second."""
        self._tick()

    def close(self) -> None:
        """Stops all timers."""
        for timer in (self._timer, *self._lingering.values()):
            if timer is not None:
                timer.cancel()

    def feed(self, event: on.Event) -> None:
        """Handles an event, and all events that follow from it at once."""
        self._events.append(event)
        if self._feeding:
            return
        self._feeding = True
        try:
            while self._events:
                for action in self.core.handle(self._events.popleft(), self._clock()):
                    self._doers[type(action)](action)
                    for told in self.listeners:
                        told(action)
        finally:
            self._feeding = False

    def owner(self, request: str) -> str | None:
        """Returns the tenant of a request that is in line or has cards; None if it is neither."""
        booking = self.core.book.get(request)
        entry = booking.entry if booking is not None else self.core.line.get(request)
        if entry is not None:
            return entry.request.tenant
        for card in self.core.pool.leases().get(request, ()):
            for holding in self.core.pool.holdings(card):
                if holding.lease == request:
                    return holding.tenant
        return None

    def name_of(self, request: str) -> str:
        """Returns what people call a request that is in line or has cards; "" for another one."""
        booking = self.core.book.get(request)
        entry = booking.entry if booking is not None else self.core.line.get(request)
        if entry is not None and entry.request.name:
            return entry.request.name
        held = (
            self.core.pool.holding(card, request)
            for card in self.core.pool.leases().get(request, ())
        )
        return next((one.name for one in held if one is not None), "")

    def requests(self) -> Iterator[tuple[str, str, str]]:
        """Yields the id, the tenant and the name of each request that is in line or has cards, and
        of each that was decided lately.
        """
        seen = set()
        for entry in self.core.line:
            seen.add(entry.request.id)
            yield entry.request.id, entry.request.tenant, entry.request.name
        for lease in self.core.pool.leases():
            seen.add(lease)
            yield lease, self.owner(lease) or "", self.name_of(lease)
        for decided in self.ledger.decisions():
            if decided.request.id not in seen:
                yield decided.request.id, decided.request.tenant, decided.request.name

    def state(self, request: str) -> str:
        """Returns what has become of a request, in a word."""
        booking = self.core.book.get(request)
        if booking is None:
            if request in self.core.line:
                return "waiting"
            return "placed" if request in self.core.pool.leases() else "gone"
        return _STATES[booking.stage]

    def gives(self, request: str, sees: Callable[[str], bool]) -> list[str]:
        """Returns what other leases gave for a request. sees: as `pool_nodes` has it."""
        booking = self.core.book.get(request)
        if booking is None:
            return []
        return [
            given(give, self.owner(give.lease) or booking.entry.request.tenant, sees)
            for give in booking.gives
        ]

    def note(self, kind: str, sentence: str, node: str = "", request: str = "") -> None:
        """Notes an event for people."""
        self.counted[kind] += 1
        # A request that was never decided has a client, or nobody looks for it.
        tenant = self.followers.tenant(request)
        name = self.name_of(request) if request else ""
        event = self.ledger.note(self.wall_clock(), kind, sentence, node, request, tenant, name)
        left_out: int | None = 0
        if kind in _COSTLESS:
            left_out = self._refusals.left_out(event.tenant, self._clock() / SECOND)
        if left_out is not None:
            more = f" (left out before: {counted(left_out, 'line')})" if left_out else ""
            who = f"{request} ({event.name})" if event.name else request or node
            log.info("%s %s%s%s", kind, who, f": {sentence}" if sentence else "", more)

    # Clients

    def linger(self, request: str) -> None:
        """Withdraws a request after a while, unless its client follows it again."""
        loop = asyncio.get_running_loop()
        self.stay(request)
        seconds = LINGER_SECONDS if request in self.core.line else UNHEARD_SECONDS
        self._lingering[request] = loop.call_later(seconds, self._forsaken, request)

    def stay(self, request: str) -> None:
        """Notes that somebody follows the request again."""
        timer = self._lingering.pop(request, None)
        if timer is not None:
            timer.cancel()

    def _forsaken(self, request: str) -> None:
        self._lingering.pop(request, None)
        if request not in self.followers:
            self.withdraw(request, "its client has gone")

    def cancel(self, request: str) -> None:
        """Takes a request back that somebody cancels, and tells who follows it."""
        self.withdraw(request, "it was cancelled")
        denied = cluster_pb2.NotPlaced(sentence="the request was cancelled with `rgpu cancel`")
        self.followers.tell(request, cluster_pb2.SubmitResponse(denied=denied))

    def withdraw(self, request: str, why: str) -> None:
        """Takes a request back, or ends its leases."""
        if self.state(request) != "gone":
            self.note("withdrawn", why, request=request)
        self.feed(on.Withdrawn(request))

    # Actions

    def _grant(self, action: do.Grant) -> None:
        booking = self.core.book.get(action.request.id)
        if booking is not None:
            decided = Decided(action.request, booking.decision, self.wall_clock(), action.attempt)
            self.ledger.decide(decided)
        link = self.links.get(action.node)
        if link is None:
            sentence = f"node {action.node} is not connected now"
            self.feed(
                on.GrantFailed(
                    action.request.id, action.node, action.attempt, sentence, certain=True
                )
            )
            return
        link.grant(action)

    def _revoke(self, action: do.Revoke) -> None:
        link = self.links.get(action.node)
        # A node that is not connected reports all leases when it comes back.
        if link is not None:
            link.revoke(action)

    def _abandon(self, action: do.Abandon) -> None:
        link = self.links.get(action.node)
        # Without a connection the lease ends if nobody comes for it within its time.
        if link is not None:
            link.abandon(action)

    def _resize(self, action: do.Resize) -> None:
        link = self.links.get(action.card.node)
        if link is not None:
            link.resize(action)
            return
        self.feed(
            on.Resized(
                action.id, action.card, action.attempt, action.number, 0, 0, 0, 0, there=False
            )
        )

    def resized(self, event: on.Resized) -> None:
        """Takes a daemon's answer, and notes what has changed."""
        had = self.core.relief.before(event)
        if had is not None and event.there:
            size = f"{format_share(event.share_ppm)} and {format_bytes(event.memory_bytes)}"
            less = event.share_ppm < had.share_ppm or event.memory_bytes < had.memory_bytes
            self.note("shrunk" if less else "grown", size, event.card.node, event.id)
        self.feed(event)

    def _announced(self, action: do.Announced) -> None:
        if action.over:
            sentence = f"tenant {action.owner} is owed what it borrowed"
            self.note("taken_back", sentence, action.node, action.id)
        else:
            sentence = f"in {action.seconds} s, for tenant {action.owner}, which is owed the room"
            self.note("announced", sentence, action.node, action.id)
            self._warn(action)

    def _warn(self, action: do.Announced) -> None:
        """Tells the programs of a lease that it is going to end, on all of its nodes."""
        sentence = (
            f"this program may lose its GPU in {format_duration(action.seconds)}: its tenant has "
            f"more than its quota of the cluster, and tenant {action.owner} is owed the room. Save "
            "what you need"
        )
        self._warned.add(action.id)
        self._tell_end(action.id, sentence, action.seconds)

    def _tell_end(self, lease: str, sentence: str, seconds: int | None) -> None:
        cards = {card.node: card for card in self.core.pool.leases().get(lease, ())}
        for name, card in sorted(cards.items()):
            link, held = self.links.get(name), self.core.pool.holding(card, lease)
            if link is not None and held is not None:
                link.warn(lease, held.attempt, sentence, seconds)

    def _take_warnings_back(self) -> None:
        """Tells the servers of leases that do not end after all."""
        for lease in [one for one in self._warned if self.core.relief.end_of(one) is None]:
            self._warned.discard(lease)
            self._tell_end(lease, "", None)

    def _placed(self, action: do.Placed) -> None:
        placed = placed_message(action.decision, self.core.pool)
        self.note("placed", placed.reason, placed.node, action.id)
        if action.id in self._lingering:
            self.linger(action.id)
        self.followers.tell(action.id, cluster_pb2.SubmitResponse(placed=placed))

    def _waiting(self, action: do.Waiting) -> None:
        entry = self.core.line.get(action.id)
        if action.refusal is not None and entry is not None:
            self.ledger.decide(
                Decided(entry.request, action.refusal, self.wall_clock(), entry.attempt)
            )
        # The sentence costs more than all else, and pods follow nothing here.
        if action.id in self.followers:
            self.followers.tell(action.id, self.in_line(action.id, action.place))

    def in_line(self, request: str, place: int) -> cluster_pb2.SubmitResponse:
        """Returns the state of a request in line, for its client."""
        entry = self.core.line.get(request)
        sentence = "" if entry is None else self.why_it_waits(entry)
        waiting = cluster_pb2.InLine(
            place=place,
            waiting=max(len(self.core.line), place),
            sentence=sentence,
            ticket=b"" if entry is None else self._ticket(entry),
        )
        return cluster_pb2.SubmitResponse(waiting=waiting)

    def _ticket(self, entry: Entry) -> bytes:
        now, waited = self.wall_clock(), (self.core.now_ns - entry.since_ns) / SECOND
        return self._tickets.sign(entry.request.id, entry.request.tenant, now - waited, now)

    def waited(self, request: str, tenant: str, ticket: bytes) -> float:
        """Returns for how many seconds a request has waited for an earlier manager."""
        return self._tickets.waited(ticket, request, tenant, self.wall_clock())

    def why_it_waits(self, entry: Entry, names: Sequence[str] = ()) -> str:
        """Returns why a request in line has no cards, in one sentence. names: those of its
        alternatives.
        """
        if entry.gang and entry.refusal is None and not entry.refused:
            here = len(self.core.line.gang(entry.gang))
            return f"{here} of the {entry.gang_size} runs of its gang are here"
        return entry.hint or entry.refused or in_short(entry.refusal, names)

    def _denied(self, action: do.Denied) -> None:
        if action.refusal is not None:
            self.ledger.decide(Decided(action.refusal.request, action.refusal, self.wall_clock()))
        self.note("denied", action.why, request=action.id)
        denied = cluster_pb2.NotPlaced(sentence=action.why)
        self.followers.tell(action.id, cluster_pb2.SubmitResponse(denied=denied))

    def _lost(self, action: do.Lost) -> None:
        self.note("lost", f"node {action.node} is silent", action.node, action.id)

    def _ended(self, action: do.Ended) -> None:
        self.note("ended", "", action.node, action.id)

    def _refresh(self, action: do.Refresh) -> None:
        link = self.links.get(action.node)
        if link is not None:
            link.refresh()

    def _tick(self) -> None:
        # First, so that the clock is looked at again whatever happens now.
        self._timer = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)
        before = {node.name for node in self.core.pool.nodes()}
        self.feed(on.Tick())
        for name in before - {node.name for node in self.core.pool.nodes()}:
            self.note("lost", "its agent is silent", name)
            self.uses.forget(name)
        self._take_warnings_back()
        self.reservations.look(time.monotonic())
        self._probe()

    def _probe(self) -> None:
        """Has a few paths measured, if some are unknown or old."""
        nodes = [node for node in self.core.pool.nodes() if node.name in self.links]
        for event in self.earlier_paths.due(nodes, self.core.paths, self.wall_clock()):
            self.feed(event)
        for client, server in self._probing.look(nodes, self.core.paths):
            self.links[client.name].measure(server)
