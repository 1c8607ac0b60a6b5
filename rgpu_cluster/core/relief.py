"""Has leases make room for requests, and grow again: what is ordered, announced and awaited.

`pressure` says who gives way. The room counts as free when the daemon has said that the lease is
smaller, or gone. Until then the request has a claim on its cards, so that nobody else takes them.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from rgpu_cluster.core.actions import Announced, Refresh, Resize
from rgpu_cluster.core.book import Booking, Stage
from rgpu_cluster.core.decision import Candidate, Decision
from rgpu_cluster.core.domains import Taken, bounds_of
from rgpu_cluster.core.limits import MOST_COUNTED, SECOND
from rgpu_cluster.core.making_room import plan
from rgpu_cluster.core.node import STALE
from rgpu_cluster.core.pressure import Rules, growth, on_card, use_of_lease, ways
from rgpu_cluster.core.request import Mode, holding_of
from rgpu_cluster.core.score import Score
from rgpu_common.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_cluster.core.actions import Action
    from rgpu_cluster.core.book import Book
    from rgpu_cluster.core.card import CardId, Holding
    from rgpu_cluster.core.events import Resized
    from rgpu_cluster.core.limits import Limits
    from rgpu_cluster.core.line import Entry, Line
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.pressure import Give, Way
    from rgpu_cluster.core.quotas import Accounts
    from rgpu_cluster.core.usage import Use

_NOBODY = Rules(beyond=lambda tenant, gone: False)


class _Order(Struct, frozen=True):
    number: int
    since_ns: int
    old: Holding
    new: Holding
    grows: bool


def _asker(entry: Entry) -> tuple[str, str]:
    """Returns who asks: a gang, or a request by itself."""
    return (entry.gang, "") if entry.gang else ("", entry.request.id)


class Relief:
    """take_back: ends a lease, with a sentence for its program. put_back: puts a request that had a
    claim in line again.
    """

    def __init__(self, pool: Pool, paths: Paths, line: Line, book: Book, limits: Limits) -> None:
        self.take_back: Callable[[str, str], None] = lambda lease, why: None
        self.put_back: Callable[[Booking], None] = lambda booking: None
        self._pool = pool
        self._paths = paths
        self._line = line
        self._book = book
        self._limits = limits
        self._actions: list[Action] = []
        self._orders: dict[tuple[str, CardId], _Order] = {}
        self._number = 0
        # Lease -> when it may end, and for which request or gang.
        self._told: dict[str, tuple[int, tuple[str, str]]] = {}
        # When the first of these ends is due.
        self._due_ns: int | None = None
        # Leases that could not be asked, because they give way or change already.
        self._hindered: set[str] = set()
        # The room of the pool for which leases have grown.
        self._grown = -1

    @property
    def rests(self) -> bool:
        """True if nothing is ordered, announced or awaited."""
        clearing = any(one.stage is Stage.CLEARING for one in self._book.moving())
        return not (self._orders or self._told or clearing)

    def end_of(self, lease: str) -> int | None:
        """Returns when a lease ends whose end was announced, in ns; None for all others."""
        told = self._told.get(lease)
        return None if told is None else told[0]

    def take_actions(self) -> list[Action]:
        """Returns what is to be done since the last call."""
        done, self._actions = self._actions, []
        return done

    # Requests

    def helps(self, together: Sequence[Entry], accounts: Accounts) -> bool:
        """Returns whether any lease could give way to a request, or to a gang."""
        owed = accounts.owed(*(entry.request for entry in together))
        return bool(self._pool.usage.elastic_cards() or owed)

    def make_way(self, together: Sequence[Entry], accounts: Accounts, now_ns: int) -> bool:
        """Has leases give way to a request, or to a gang, for which there are no cards.

        Returns True if it has a claim on its cards now. Leases make room for all of a gang, or for
        nobody.
        """
        asker = _asker(together[0])
        for entry in together:
            entry.hint = ""
        mine = {lease for lease, (_, whose) in self._told.items() if whose == asker}
        busy = self._busy() | (self._told.keys() - mine)
        owed = accounts.owed(*(entry.request for entry in together))
        # A lease whose request is in line again is being revoked.
        leases = self._pool.leases()
        revoked = {x.request.id for x in self._line if x.attempt and x.request.id in leases}
        rules = Rules(accounts.beyond, self._use, owed, busy | revoked, mine)
        found = self._plan(together, rules)
        ways = [way for row in found for way in row]
        ends = {give.lease: give for way in ways for give in way.gives if give.ends}
        for lease in mine - ends.keys():
            del self._told[lease]
        if ends and not self._all_told(together, ends, accounts, now_ns):
            return False
        for entry, row in zip(together, found, strict=False):
            self._claim(entry, row, now_ns)
        for lease, give in sorted(ends.items()):
            self._end(lease, give.card.node, together[0].request.tenant)
        for give in chain.from_iterable(way.gives for way in ways):
            if not give.ends and self._pool.holding(give.card, give.lease) is not None:
                self._order(give, now_ns)
        if not found:
            self._hindered |= busy
        return bool(found)

    def _use(self, lease: str) -> Use:
        return use_of_lease(self._pool, lease)

    def _plan(self, together: Sequence[Entry], rules: Rules) -> list[list[Way]]:
        """Returns the cards of each request; [] if there is no room to be made."""
        requests = [entry.request for entry in together]
        before = self._book.adopted(together[0].gang)
        if len(requests) == 1 and requests[0].cards == 1 and not before:
            found = ways(self._pool, requests[0], self._paths, rules)
            return [found] if found else []
        taken = Taken(bounds_of(requests))
        for booking in before:
            for card in booking.decision.chosen.cards:
                node = self._pool.node(card.node)
                if node is not None:
                    taken.take(node)
        return plan(self._pool, requests, self._paths, rules, taken)

    def spare(self, entry: Entry) -> None:
        """Takes back what was announced for a request that may have no cards now."""
        entry.hint = ""
        mine = [lease for lease, (_, asker) in self._told.items() if asker == _asker(entry)]
        for lease in mine:
            del self._told[lease]

    def _busy(self) -> set[str]:
        busy = {lease for lease, _ in self._orders}
        for booking in self._book.moving():
            busy.add(booking.entry.request.id)
            busy.update(give.lease for give in booking.gives)
        return busy

    def _all_told(
        self,
        together: Sequence[Entry],
        ends: dict[str, Give],
        accounts: Accounts,
        now_ns: int,
    ) -> bool:
        """Announces the ends of leases. Returns whether the grace of all of them is over."""
        due, asker = now_ns, _asker(together[0])
        waits = all(entry.wait for entry in together)
        for lease, give in sorted(ends.items()):
            grace = self._grace_ns(give, accounts)
            if lease not in self._told and grace and not waits:
                longest = max(self._grace_ns(one, accounts) for one in ends.values())
                for entry in together:
                    entry.lent = (
                        "; its room is lent to tenants beyond their quotas: --wait gets it back "
                        f"within {-(-longest // SECOND)} s"
                    )
                return False
            if lease not in self._told:
                self._told[lease] = now_ns + grace, asker
                owner, seconds = together[0].request.tenant, grace // SECOND
                self._actions.append(Announced(lease, give.card.node, owner, seconds))
            due = max(due, self._told[lease][0])
        if due <= now_ns:
            return True
        self._await_next(now_ns)
        for entry in together:
            entry.hint = (
                f"{counted(len(ends), 'lease')} of tenants beyond their quotas will end for it in "
                f"{-(-(due - now_ns) // SECOND)} s at most"
            )
        return False

    def _grace_ns(self, give: Give, accounts: Accounts) -> int:
        """Returns how long before its end the tenant of a lease is told."""
        holding = self._pool.holding(give.card, give.lease)
        assert holding is not None, "a lease that gives way is in the pool"
        return accounts.grace_ns(holding.tenant, self._limits.grace_ns)

    def _claim(self, entry: Entry, found: Sequence[Way], now_ns: int) -> None:
        request = entry.request
        entry.attempt += 1
        self._line.remove(request.id)
        for way in found:
            bandwidth = request.bandwidth_bps if way.mode >= Mode.NEAR else 0
            memory = self._pool.card(way.card).memory_bytes
            self._pool.claim(way.card, holding_of(request, memory, entry.attempt), bandwidth)
        worst = max(found, key=lambda way: (way.mode, way.predicted.slowdown_ppm))
        candidate = Candidate(
            tuple(way.card for way in found),
            worst.mode,
            worst.predicted.slowdown_ppm,
            worst.predicted.transport,
            worst.predicted.measured,
            Score(0, 0, 0, 0, 0, 0, 0),
        )
        decision = Decision(request, candidate, self._pool.generation)
        booking = Booking(entry, decision, Stage.CLEARING, since_ns=now_ns)
        booking.gives = tuple(give for way in found for give in way.gives)
        self._book.add(booking)

    def _end(self, lease: str, node: str, owner: str) -> None:
        why = (
            f"its tenant has more than its quota of the cluster, and tenant {owner} is owed the "
            "room; ask for less, or wait for room with --wait"
        )
        self._told.pop(lease, None)
        self._actions.append(Announced(lease, node, owner, 0, over=True))
        self.take_back(lease, why)

    # Orders

    def _order(self, give: Give, now_ns: int, *, grows: bool = False) -> None:
        had = self._pool.holding(give.card, give.lease)
        assert had is not None, "a lease that changes is in the pool"
        told = had.order if had.order <= MOST_COUNTED else 0
        self._number = number = max(self._number, told) + 1
        new = replace(had, share_ppm=give.share_ppm, memory_bytes=give.memory_bytes)
        self._orders[give.lease, give.card] = _Order(number, now_ns, had, new, grows)
        if grows:
            # Its room is taken before its daemon is asked.
            self._pool.resize(give.card, give.lease, new)
        self._actions.append(
            Resize(give.lease, give.card, had.attempt, number, give.share_ppm, give.memory_bytes)
        )

    def before(self, event: Resized) -> Holding | None:
        """Returns what the lease had before the order that is answered now; None: it is old."""
        order = self._orders.get((event.id, event.card))
        return order.old if order is not None and order.number == event.number else None

    def resized(self, event: Resized) -> None:
        """Takes a daemon's answer. What it says of an earlier order is old."""
        key = event.id, event.card
        order = self._orders.get(key)
        if order is None or order.number != event.number:
            return
        del self._orders[key]
        node, had = self._pool.node(event.card.node), self._pool.holding(event.card, event.id)
        if node is None or had is None or event.generation < node.generation:
            return  # a later report has told already
        if not event.there or had.attempt != event.attempt:
            return
        elastic = had.elastic
        if elastic is not None:
            elastic = replace(elastic, least_bytes=event.least_bytes)
        new = replace(
            had,
            share_ppm=event.share_ppm,
            memory_bytes=event.memory_bytes,
            elastic=elastic,
            order=event.number,
        )
        self._pool.resize(event.card, event.id, new)
        less = new.share_ppm < order.new.share_ppm or new.memory_bytes < order.new.memory_bytes
        if order.grows and less and STALE not in node.taints:
            # The pool is wrong about this node: else it would be asked again and again.
            self._pool.taint(node.name, STALE)
            self._actions.append(Refresh(node.name))

    def keep(self, node: str, held: dict[CardId, list[Holding]]) -> None:
        """Adds to a report the room of leases that are told to grow."""
        for (lease, card), order in self._orders.items():
            if card.node != node or not order.grows:
                continue
            held[card] = [
                replace(
                    one,
                    share_ppm=max(one.share_ppm, order.new.share_ppm),
                    memory_bytes=max(one.memory_bytes, order.new.memory_bytes),
                )
                if one.lease == lease and one.attempt == order.new.attempt
                else one
                for one in held.get(card, ())
            ]

    # What is awaited

    def _await_next(self, now_ns: int) -> None:
        times = (due for due, _ in self._told.values() if due > now_ns)
        self._due_ns = min(times, default=None)

    def take_news(self, now_ns: int) -> bool:
        """Returns whether leases may give way now that could not at the last call."""
        if self._due_ns is not None and self._due_ns <= now_ns:
            self._await_next(now_ns)
            return True
        if not self._hindered or self._hindered <= self._busy() | self._told.keys():
            return False
        self._hindered.clear()
        return True

    def review(self, now_ns: int) -> None:
        """Asks for the cards of claims that are free now, and gives up those that take too long."""
        for key, order in list(self._orders.items()):
            if now_ns - order.since_ns > self._limits.clear_ns:
                del self._orders[key]
                if self._pool.node(key[1].node) is not None:
                    self._actions.append(Refresh(key[1].node))
        for together in self._clearing():
            if all(self._is_free(one, card) for one in together for card in one.cards):
                for one in together:
                    self._actions += one.ask(now_ns)
            elif self._have_failed(together, now_ns):
                for one in together:
                    self.put_back(one)

    def _clearing(self) -> list[list[Booking]]:
        """Returns the claims, those of one gang together."""
        claims: dict[tuple[str, str], list[Booking]] = {}
        for booking in self._book.moving():
            if booking.stage is Stage.CLEARING:
                claims.setdefault(_asker(booking.entry), []).append(booking)
        return list(claims.values())

    def forget(self) -> None:
        """Takes announcements back whose requests need them no more."""
        there = self._pool.leases()
        for lease, (_, asker) in list(self._told.items()):
            waits = self._line.gang(asker[0]) if asker[0] else asker[1] in self._line
            if not waits or lease not in there:
                del self._told[lease]

    def _is_free(self, booking: Booking, card: CardId) -> bool:
        """Returns whether a card has the room of a claim, beside all leases and earlier claims."""
        request = booking.entry.request
        before: list[Holding] = []
        mine = False
        for one in self._pool.holdings(card):
            other = self._book.get(one.lease)
            claims = other is not None and other.stage is Stage.CLEARING
            mine |= one.lease == request.id
            if one.lease != request.id and not (mine and claims):
                before.append(one)
        return mine and on_card(self._pool.card(card), before, request, _NOBODY) == ()

    def _have_failed(self, together: Sequence[Booking], now_ns: int) -> bool:
        if any(now_ns - one.since_ns > self._limits.clear_ns for one in together):
            return True
        gives = [give for one in together for give in one.gives]
        # A lease that ends may hold its room a little longer than its name.
        ends = any(give.ends for give in gives)
        return not ends and not any((g.lease, g.card) in self._orders for g in gives)

    # Growing

    def grow(self, accounts: Accounts, now_ns: int) -> None:
        """Has leases that have shrunk grow into room that nobody in line can use."""
        elastic = self._pool.usage.elastic_cards()
        if not elastic or self._grown == self._pool.room:
            return
        self._grown = self._pool.room
        busy = self._busy()

        def may(one: Holding, more: Use) -> bool:
            if one.lease in busy:
                self._grown = -1  # it is asked again when it has done what it was told
            return one.lease not in busy and accounts.may_grow(one.tenant, more)

        for place in sorted(elastic):
            node, card = self._pool.node(place.node), self._pool.card(place)
            if node is not None and STALE not in node.taints:
                for give in growth(card, self._pool.holdings(place), may):
                    self._order(give, now_ns, grows=True)
