"""The manager as a pure state machine: events in, actions out.

The seven steps of a request: nodes report what they have (1), a client asks (2), the pool is
searched (4), the pool reserves the cards and the daemons are asked to grant (5), the client hears
where its cards are and connects (6), the daemons hold it to its share (7), and give the cards back
when it ends (3).

The daemons decide whether a lease exists. The manager only reserves, asks, and believes what they
report. So a manager that is killed loses nothing that a report and its clients do not bring back.
"""

from __future__ import annotations

from msgspec.structs import replace

from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Denied, Ended, Lost, Placed, Refresh, Revoke
from rgpu_cluster.core.book import Book, Booking, Stage
from rgpu_cluster.core.choices import entry_of, take_over
from rgpu_cluster.core.clock import OwnClock
from rgpu_cluster.core.dealing import Dealer
from rgpu_cluster.core.decision import Candidate, Decision
from rgpu_cluster.core.gone import Gone
from rgpu_cluster.core.limits import MOST_COUNTED, Limits
from rgpu_cluster.core.line import CROWDED_OUT, Entry, Line, crowded, gang_differs
from rgpu_cluster.core.node import STALE
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.presence import agrees, is_news, presence, strays
from rgpu_cluster.core.quotas import Quotas
from rgpu_cluster.core.request import Mode, holding_of
from rgpu_cluster.core.reserving import why_not
from rgpu_cluster.core.score import PRESETS, Score, Weights

# A request of these stages has asked for its cards, and has none yet.
_ASKS = Stage.CLEARING, Stage.PENDING


class Manager:
    """All that the manager knows. `handle` is the only entrance."""

    def __init__(
        self,
        weights: Weights = PRESETS["fgd"],
        limits: Limits | None = None,
        quotas: Quotas | None = None,
    ) -> None:
        self.pool = Pool()
        self.paths = Paths()
        self.line = Line()
        self.book = Book()
        self.gone = Gone()
        self.quotas = quotas or Quotas({})
        self._limits = limits or Limits()
        self._dealer = Dealer(
            self.pool, self.paths, self.line, self.book, weights, self._limits, self.quotas
        )
        self.relief = self._dealer.relief
        self.relief.take_back, self.relief.put_back = self._take_back, self._put_back
        self._clock = OwnClock()
        self._seen_ns: dict[str, int] = {}
        self._numbers = 0
        self._actions: list[Action] = []

    @property
    def now_ns(self) -> int:
        """The manager's own time."""
        return self._clock.now_ns

    def handle(self, event: ev.Event, now_ns: int) -> list[Action]:
        """Takes an event and returns what to do, in order. now_ns: any clock of the shell."""
        self._actions = []
        self._clock.look(now_ns)
        match event:
            case ev.NodeReported(node):
                self._reported(event)
                self._seen_ns[node.name] = self._clock.now_ns
            case ev.NodeBeat(name):
                if self.pool.node(name) is not None:
                    self._seen_ns[name] = self._clock.now_ns
                else:  # it was silent for too long, and is back
                    self._actions.append(Refresh(name))
            case ev.NodeCut(name):
                if self.pool.node(name) is not None:
                    self.pool.taint(name, STALE)
            case ev.Asked():
                self._asked(event)
            case ev.Withdrawn(request):
                self._withdrawn(request)
            case ev.Left(request):
                booking = self.book.get(request)
                self._actions += booking.abandoned() if booking is not None else ()
            case ev.Granted():
                self._granted(event)
            case ev.GrantFailed():
                self._grant_failed(event)
            case ev.Revoked(request, node, attempt):
                self._revoked(request, node, attempt)
            case ev.Resized():
                self.relief.resized(event)
            case ev.PathMeasured(client, server, figures):
                self.paths.learn(client, server, figures)
                self._dealer.again()
            case ev.QuotasSet(of_tenant):
                self.quotas.replace(of_tenant)
                self._dealer.again()
            case ev.Tick():
                self._tick()
        tick = isinstance(event, ev.Tick)
        self._actions += self._dealer.deal(self._clock.now_ns, tells_all=tick)
        return self._actions

    # Nodes.

    def _reported(self, event: ev.NodeReported) -> None:
        node, held = event.node, {card: list(some) for card, some in event.held.items()}
        known = self.pool.node(node.name)
        if known is not None and not is_news(node, known):
            return
        sizes = {card.id: card.memory_bytes for card in node.cards}
        present = presence(held)
        ended, cardless = [], []
        for booking in self.book.on(node.name):
            entry = booking.entry
            if agrees(booking, node.name, present):
                if booking.stage is Stage.UNDOING:
                    continue
                booking.waiting_for.discard(node.name)
                booking.granted[node.name] = node.generation
                self._all_granted(booking)
            elif booking.granted.get(node.name, node.generation + 1) <= node.generation:
                ended.append(booking)
            elif booking.stage in _ASKS or node.name in booking.waiting_for:
                if booking.stage in _ASKS and not sizes.keys() >= set(booking.cards_on(node.name)):
                    cardless.append(booking)
                for card in booking.cards_on(node.name):
                    mine = holding_of(entry.request, sizes.get(card, 0), entry.attempt)
                    there = held.setdefault(card, [])
                    # An earlier attempt that is being revoked keeps the room as well.
                    if all(h.lease != mine.lease for h in there):
                        there.append(mine)
        self._actions += strays(node.name, present, self.book, self.line)
        self.relief.keep(node.name, held)
        self.pool.report(node, held)
        self.gone.forget(node.name)
        for lease in present:
            waiting = self.line.get(lease)
            if waiting is not None and not waiting.attempt:
                self.line.remove(lease)
                self._adopt(waiting)
        # The node has lost a card that was meant for them.
        for one in {id(x): x for booking in cardless for x in self._gang_of(booking)}.values():
            self._undo(one, again=True)
        for booking in ended:
            booking.granted.pop(node.name, None)
            self._actions.append(Ended(booking.entry.request.id, node.name))
            self._undo(booking, again=False, without=node.name)

    def _lose(self, name: str) -> None:
        """Takes a silent node out of the pool.

        Its programs may run on, so leases that were granted are not revoked: they come back with
        the node's next report, or end with their sessions. What was not granted is placed again.
        """
        asked = {
            one.entry.request.id
            for one in self.book.on(name)
            if one.stage in _ASKS or name not in one.granted
        }
        self.gone.keep(self.pool, name, self._seen_ns.get(name, self._clock.now_ns), asked)
        for booking in self.book.on(name):
            if booking.stage is Stage.PLACED:
                self._actions.append(Lost(booking.entry.request.id, name))
                self.book.remove(booking.entry.request.id)
            elif booking.stage in _ASKS:
                for one in self._gang_of(booking):
                    self._undo(one, again=True, without=name)
            elif self.book.get(booking.entry.request.id) is booking:
                self._undo(booking, again=booking.again, without=name)
        node = self.pool.node(name)
        if node is not None:
            self._dealer.absent[name] = (node, self._clock.now_ns)
        self.pool.lose(name)
        self._seen_ns.pop(name, None)

    def _tick(self) -> None:
        now_ns = self._clock.now_ns
        self.paths.grow_older(now_ns)
        self.gone.look(now_ns)
        for name, seen in list(self._seen_ns.items()):
            if now_ns - seen > self._limits.silence_ns:
                self._lose(name)
        for booking in self.book.moving():
            late = now_ns - booking.since_ns > self._limits.grant_ns
            if booking.stage is Stage.PENDING and late:
                self._undo(booking, again=True)
            elif booking.stage is Stage.UNDOING and booking.again and late:
                self._place_without(booking)

    def _place_without(self, booking: Booking) -> None:
        """Places a request elsewhere, although daemons are connected and answer no order.

        If one has granted, its next report says so, and the lease of that attempt is revoked then.
        """
        entry = booking.entry
        for name in sorted(booking.waiting_for):
            entry.bar(name, passing=True)
            entry.refused = (
                f"the server of node {name} does not answer; try again for another node, and have "
                "its operator look at its log"
            )
            if self.pool.node(name) is not None:
                self.pool.taint(name, STALE)
                self._actions.append(Refresh(name))
        booking.waiting_for.clear()
        self._finish_undoing(booking)

    # Requests.

    def _asked(self, event: ev.Asked) -> None:
        request = event.request
        booking = self.book.get(request.id)
        if booking is not None and booking.stage is Stage.PLACED:
            self._actions.append(Placed(request.id, booking.decision))
            return
        if booking is not None or request.id in self.line:
            return
        self._numbers += 1
        entry = entry_of(event, self._clock.now_ns - event.waited_ns, self._numbers)
        if request.id in self.pool.leases():
            self._adopt(entry)
            return
        why = (
            self.quotas.why_not(request)
            or crowded(request, self.line, self._limits)
            or why_not(request, self.pool, self.book, self.line, self._limits)
            or gang_differs(entry, self.line)
        )
        if why:
            self._actions.append(Denied(request.id, why))
            return
        self._make_room_in_line(request.tenant)
        self.line.add(entry)

    def _make_room_in_line(self, tenant: str) -> None:
        """Takes a request out of a full line, for one of a tenant that has fewer in it."""
        leaves = self.line.gives_way(tenant) if len(self.line) >= self._limits.line else None
        if leaves is not None:
            self.line.remove(leaves)
            self._actions.append(Denied(leaves, CROWDED_OUT))

    def _adopt(self, entry: Entry) -> None:
        """Takes over a lease that a daemon has and that this manager did not place.

        The manager was started again, or the node was silent: the lease is the one that the client
        asked for before.
        """
        request = entry.request
        cards = tuple(sorted(self.pool.leases()[request.id]))
        there = (self.pool.holding(card, request.id) for card in cards)
        attempts = {one.attempt for one in there if one is not None}
        true = [attempt for attempt in attempts if attempt <= MOST_COUNTED]
        if len(attempts) > 1 or not true or not take_over(entry, cards, self.pool):
            # Only some of its daemons have it, one more than was asked, they have it from different
            # attempts, or a node lies about the attempt: placed anew.
            entry.attempt = max(true, default=0) + 1
            self.line.add(entry)
            self._revoke_all(request.id)
            return
        (entry.attempt,) = attempts
        candidate = Candidate(cards, Mode.ANY, 0, "", False, Score(0, 0, 0, 0, 0, 0, 0))
        decision = Decision(entry.request, candidate, self.pool.generation)
        booking = Booking(entry, decision, Stage.PLACED, since_ns=self._clock.now_ns, adopted=True)
        for name in booking.nodes():
            node = self.pool.node(name)
            booking.granted[name] = node.generation if node is not None else 0
        self.book.add(booking)
        self._actions.append(Placed(request.id, decision))

    def _revoke_all(self, request: str) -> None:
        """Ends leases that are in the pool and not in the book."""
        for card in sorted(self.pool.leases().get(request, ())):
            one = self.pool.holding(card, request)
            if one is not None:
                self._actions.append(Revoke(request, card.node, one.attempt))

    def _withdrawn(self, request: str) -> None:
        self.line.remove(request)
        booking = self.book.get(request)
        if booking is None:
            self._revoke_all(request)
        elif booking.stage in _ASKS:
            # The others wait until their gang is complete again.
            for one in self._gang_of(booking):
                self._undo(one, again=one is not booking)
        else:
            booking.again = False
            self._undo(booking, again=False)

    # Making room (`relief`).

    def _take_back(self, lease: str, why: str) -> None:
        """Ends a lease whose room another tenant is owed."""
        booking, before = self.book.get(lease), len(self._actions)
        if booking is not None:
            self._undo(booking, again=False)
        else:
            self._revoke_all(lease)
        for place, action in enumerate(self._actions[before:], before):
            if isinstance(action, Revoke):
                self._actions[place] = replace(action, why=why)

    def _put_back(self, booking: Booking) -> None:
        """Puts a request in line again for which no room was made in time."""
        entry = booking.entry
        entry.refused, entry.refusals = "other leases did not make room in time", entry.refusals + 1
        if entry.wait:
            entry.rest(self._clock.now_ns, self._limits)
        elif entry.refusals >= self._limits.refusals:
            entry.hopeless = True
        self._undo(booking, again=True)

    # Grants.

    def _granted(self, event: ev.Granted) -> None:
        booking = self.book.get(event.id)
        if booking is None:
            # It was withdrawn meanwhile; or its node was silent and is back with the lease.
            on = {card.node for card in self.pool.leases().get(event.id, ())}
            if self.pool.node(event.node) is not None and event.node not in on:
                self._actions.append(Revoke(event.id, event.node, event.attempt))
            return
        if booking.entry.attempt != event.attempt:
            self._actions.append(Revoke(event.id, event.node, event.attempt))
            return
        if booking.stage is Stage.UNDOING:
            return  # the revoke that was sent comes after the grant, or was answered
        booking.granted[event.node] = event.generation
        booking.waiting_for.discard(event.node)
        self._all_granted(booking)

    def _all_granted(self, booking: Booking) -> None:
        """Tells the clients of a gang once every daemon of each has granted."""
        gang = self._gang_of(booking)
        if booking.stage is not Stage.PENDING or any(one.waiting_for for one in gang):
            return
        for one in gang:
            one.stage = Stage.PLACED
            one.entry.refused, one.entry.refusals = "", 0
            self._actions.append(Placed(one.entry.request.id, one.decision))

    def _grant_failed(self, event: ev.GrantFailed) -> None:
        booking = self.book.get(event.id)
        if booking is None or booking.entry.attempt != event.attempt:
            return
        if booking.stage is not Stage.PENDING:
            return
        self._note_refusal(booking.entry, event)
        if event.ground is ev.Ground.ROOM and self.pool.node(event.node) is not None:
            # The pool is wrong about this node, so nothing more is placed there for now.
            self.pool.taint(event.node, STALE)
            self._actions.append(Refresh(event.node))
        for one in self._gang_of(booking):
            refused = event.node if event.certain and one is booking else ""
            self._undo(one, again=True, without=refused)

    def _note_refusal(self, entry: Entry, event: ev.GrantFailed) -> None:
        """Has a request that waits be tried again later.

        One that does not wait is tried at once, a few times, because another node may take it. So
        is one that this node does not allow.
        """
        entry.refused = event.why
        entry.refusals += 1
        if event.ground is not ev.Ground.ROOM:
            entry.bar(event.node, passing=event.ground is ev.Ground.TENANT)
        elif entry.wait:
            entry.rest(self._clock.now_ns, self._limits)
        elif entry.refusals >= self._limits.refusals:
            entry.hopeless = True

    def _revoked(self, request: str, node: str, attempt: int) -> None:
        booking = self.book.get(request)
        if booking is None or booking.stage is not Stage.UNDOING:
            return
        if booking.entry.attempt == attempt:
            booking.waiting_for.discard(node)
            self._finish_undoing(booking)

    def _gang_of(self, booking: Booking) -> list[Booking]:
        """Returns a booking that asks for cards, and the members of its gang that do."""
        gang = booking.entry.gang
        if not gang:
            return [booking]
        return [x for x in self.book.moving() if x.entry.gang == gang and x.stage in _ASKS]

    def _undo(self, booking: Booking, *, again: bool, without: str = "") -> None:
        """Gives the cards back, and puts the request in line `again`.

        without: a node that has the lease no more, or cannot be asked.
        """
        entry = booking.entry
        if booking.stage is not Stage.UNDOING:
            booking.waiting_for |= set(booking.granted)
            self.book.undo(booking)
            booking.since_ns = self._clock.now_ns
            booking.again = again
            for node in sorted(booking.waiting_for - {without}):
                self._actions.append(Revoke(entry.request.id, node, entry.attempt))
        booking.waiting_for.discard(without)
        self._finish_undoing(booking)

    def _finish_undoing(self, booking: Booking) -> None:
        if booking.waiting_for:
            return
        entry, request = booking.entry, booking.entry.request.id
        self.book.remove(request)
        self.pool.release(request)
        if booking.again and entry.hopeless:
            self._actions.append(Denied(request, entry.refused))
        elif booking.again:
            self.line.add(entry)
