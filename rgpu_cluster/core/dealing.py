"""Tries the requests in line, and reserves cards for those that fit."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.actions import Denied, Waiting
from rgpu_cluster.core.book import Booking
from rgpu_cluster.core.decision import Refusal
from rgpu_cluster.core.feasible import would_fit
from rgpu_cluster.core.line import members, shape_of
from rgpu_cluster.core.quotas import Accounts
from rgpu_cluster.core.relief import Relief
from rgpu_cluster.core.together import place_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rgpu_cluster.core.actions import Action
    from rgpu_cluster.core.book import Book
    from rgpu_cluster.core.limits import Limits
    from rgpu_cluster.core.line import Entry, Group, Line
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.quotas import Quotas
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.core.score import Weights

_WAIT = "; wait for room with --wait"


# More shapes that do not fit are not remembered.
_MOST_FAILED = 4096


class Fate(Enum):
    """What became of a try. LEFT: there was none, because the tenant has had its tries."""

    PLACED = "placed"
    REFUSED = "refused"
    LEFT = "left"
    PASSED_OVER = "passed over"


class Dealer:
    """Deals out cards. absent: nodes that were lost not long ago, and may come back."""

    def __init__(
        self,
        pool: Pool,
        paths: Paths,
        line: Line,
        book: Book,
        weights: Weights,
        limits: Limits,
        quotas: Quotas,
    ) -> None:
        self.absent: dict[str, tuple[Node, int]] = {}
        self._pool = pool
        self._paths = paths
        self._line = line
        self._book = book
        self._weights = weights
        self._limits = limits
        self._quotas = quotas
        self._accounts = Accounts(quotas, pool)
        self.relief = Relief(pool, paths, line, book, limits)
        self._plans = 0
        self._actions: list[Action] = []
        # Counts what changes beside the pool.
        self._news = 0
        # The state for which the whole line was tried last.
        self._done: tuple[int, ...] = ()
        # Shapes that do not fit in that state.
        self._failed: dict[Request, Refusal] = {}
        self._tries: Counter[str] = Counter()
        # A request is in line only because a node may come until then.
        self._hope_ns: int | None = None
        # The changes of the line and of the pool for which all clients know their places.
        self._told: tuple[int, int] = (0, 0)

    def deal(self, now_ns: int, *, tells_all: bool = True) -> list[Action]:
        """Tries the requests in line that may fit now and did not fit before.

        A request that comes makes nothing possible for the others, so it alone is tried. After
        other changes the oldest of each group is. tells_all: tells all clients their places.
        """
        self._actions = []
        self.relief.review(now_ns)
        fresh = self._line.take_fresh(now_ns)
        self._tries.clear()
        self._plans = 0
        before = self._state()
        hopeless = self._hope_ns is not None and now_ns >= self._hope_ns
        if self.relief.take_news(now_ns):
            self._news += 1
        if hopeless or before != self._done:
            complete = self._try_all(now_ns)
        else:
            complete = self._try_some(fresh, now_ns)
        # What was placed meanwhile may change who is owed cards, so this is the state before it.
        self._done = before if complete else ()
        self.relief.forget()
        if complete:
            self.relief.grow(self._accounts, now_ns)
        self._actions += self.relief.take_actions()
        for entry in fresh:
            if entry.request.id in self._line:
                self._tell_place(entry, self._line.place_of(entry, self._share_of))
        if tells_all:
            self._tell_places()
        return self._actions

    def again(self) -> None:
        """Has the line tried again, although neither it nor the pool has changed."""
        self._news += 1

    def _state(self) -> tuple[int, ...]:
        if not self._quotas:
            return self._pool.room, self._news
        # Who may borrow depends on what everybody has, and on who waits for what is its own.
        return self._pool.room, self._news, self._pool.generation, self._line.departures

    def _share_of(self, tenant: str) -> int:
        return self._pool.usage.dominant_share(tenant)

    def _try_all(self, now_ns: int) -> bool:
        """Tries the oldest request of each group, and the next one if that is placed.

        Returns False if some were left for the next time.
        """
        self._hope_ns = None
        self._failed.clear()
        self._accounts.begin()
        complete = True
        rows = [self._row(number, group) for number, group in enumerate(self._line.groups())]
        heapq.heapify(rows)
        while rows:
            *rank, age, number, group = heapq.heappop(rows)
            place = bisect_left(group.order, age)
            # It may have been placed or denied with its gang.
            if group.order[place : place + 1] == [age]:
                fate = self._try(self._entry(age), now_ns)
                complete &= fate is not Fate.LEFT
                if fate in (Fate.LEFT, Fate.REFUSED):
                    continue
                place += fate is Fate.PASSED_OVER
            if place < len(group.order):
                heapq.heappush(rows, (*rank, group.order[place], number, group))
        return complete

    def _row(self, number: int, group: Group) -> tuple[Any, ...]:
        """Returns the oldest request of a group, in the order in which requests are tried."""
        request = self._entry(group.order[0]).request
        rank = self._accounts.borrows(request), -request.priority, self._share_of(request.tenant)
        return (*rank, group.order[0], number, group)

    def _try_some(self, entries: Iterable[Entry], now_ns: int) -> bool:
        """Tries requests that have come. Returns False if some were left for the next time."""
        complete = True
        for entry in sorted(entries, key=self._rank):
            if entry.request.id in self._line and entry.group is not None:
                complete &= self._try(entry, now_ns) is not Fate.LEFT
        return complete

    def _rank(self, entry: Entry) -> tuple[Any, ...]:
        request = entry.request
        borrows = self._accounts.borrows(request)
        return borrows, -request.priority, self._share_of(request.tenant), entry.age

    def _entry(self, age: tuple[int, int, str]) -> Entry:
        entry = self._line.get(age[2])
        assert entry is not None, "a group has only requests that are in line"
        return entry

    def _try(self, entry: Entry, now_ns: int) -> Fate:
        """Tries a request, with its gang."""
        together = members(entry, self._line, len(self._book.adopted(entry.gang)))
        leases = self._pool.leases()
        if together is None or any(x.group is None or x.request.id in leases for x in together):
            # Some of the gang are not here yet, or rest; or an earlier lease is being revoked.
            return Fate.PASSED_OVER
        refusal = self._over_quota(together)
        if refusal is not None:
            self.relief.spare(entry)
        else:
            group = entry.group
            if group is not None and group.tried == (self._pool.room, self._news):
                refusal = group.refusal
            else:
                fate, refusal = self._try_anew(entry, together, now_ns)
                if fate is not Fate.REFUSED:
                    return fate
            assert refusal is not None, "a group that was tried has a refusal"
            self._note_failure(entry, together, refusal)
        for group in {id(one.group): one.group for one in together}.values():
            if group is not None:
                group.refusal = refusal
                self._give_up_group(group, refusal, now_ns)
        return Fate.REFUSED

    def _over_quota(self, together: Sequence[Entry]) -> Refusal | None:
        why, possible = self._accounts.why_not([one.request for one in together])
        if not why:
            return None
        return Refusal(together[0].request, self._pool.generation, (), possible, why)

    def _try_anew(
        self, entry: Entry, together: Sequence[Entry], now_ns: int
    ) -> tuple[Fate, Refusal | None]:
        """Looks for cards, and then for leases that give way."""
        tenant = entry.request.tenant
        refusal = None if entry.gang else self._failed.get(shape_of(entry.request))
        if refusal is None:
            if self._tries[tenant] >= self._limits.tries:
                return Fate.LEFT, None
            self._tries[tenant] += len(together)
            refusal = self._place_all(together, now_ns)
        if refusal is None:
            return Fate.PLACED, None
        if refusal.possible and self.relief.helps(entry, self._accounts):
            if self._plans >= self._limits.plans:
                return Fate.LEFT, None
            self._plans += 1
            if self.relief.make_way(entry, self._accounts, now_ns):
                return Fate.PLACED, None
        else:
            self.relief.spare(entry)
        return Fate.REFUSED, refusal

    def _note_failure(self, entry: Entry, together: Iterable[Entry], refusal: Refusal) -> None:
        if not entry.gang and len(self._failed) < _MOST_FAILED:
            self._failed[shape_of(entry.request)] = refusal
        for one in together:
            self._accounts.not_placed(one.request)
            if one.group is not None:
                one.group.tried = self._pool.room, self._news

    def _give_up_group(self, group: Group, refusal: Refusal, now_ns: int) -> None:
        """Decides for all requests of a group, which differ only in their age."""
        for age in list(group.order):
            if not self._give_up(self._entry(age), refusal, now_ns):
                return

    def _give_up(self, entry: Entry, refusal: Refusal, now_ns: int) -> bool:
        """Denies a request that does not wait, or that no node can ever take; and lets one rest
        that a node may allow later. Returns False if it waits on, as its whole group does.
        """
        if entry.wait and entry.passing:
            self._line.rest(entry, now_ns, self._limits)
            return True
        if now_ns < self._limits.start_ns and not refusal.possible:
            self._hope_until(self._limits.start_ns)
            return False
        hope = not refusal.possible and self._could_return(entry.request, now_ns)
        possible = refusal.possible or hope
        if entry.wait and possible:
            if hope:
                ends = [since + self._limits.absent_ns + 1 for _, since in self.absent.values()]
                self._hope_until(min(ends))
            return False
        self._line.remove(entry.request.id)
        why = entry.refused or refusal.remedy + (_WAIT if possible else "")
        self._actions.append(Denied(entry.request.id, why, refusal))
        return True

    def _hope_until(self, time_ns: int) -> None:
        self._hope_ns = time_ns if self._hope_ns is None else min(self._hope_ns, time_ns)

    def _could_return(self, request: Request, now_ns: int) -> bool:
        """Returns whether a node that was lost not long ago could take the request."""
        for name, (_, since) in list(self.absent.items()):
            if now_ns - since > self._limits.absent_ns or self._pool.node(name) is not None:
                del self.absent[name]
        nodes = [*self._pool.nodes(), *(node for node, _ in self.absent.values())]
        return bool(self.absent) and would_fit(nodes, request, self._paths)

    def _place_all(self, entries: Sequence[Entry], now_ns: int) -> Refusal | None:
        """Places requests together, or none of them. Returns why the first of them failed."""
        before = self._book.adopted(entries[0].gang)
        cards = [card for booking in before for card in booking.decision.chosen.cards]
        placed = place_all(self._pool, entries, self._paths, self._weights, cards)
        if isinstance(placed, Refusal):
            return placed
        for entry, decision in placed:
            entry.attempt += 1
            self._line.remove(entry.request.id)
            booking = Booking(entry, decision)
            self._book.add(booking)
            self._actions += booking.ask(now_ns)
        return None

    def _tell_places(self) -> None:
        """Tells every client whose place has changed. Costs a sort of the line."""
        now = self._line.changes, self._pool.generation
        if now == self._told:
            return
        self._told = now
        for number, entry in enumerate(self._line.order(self._share_of), start=1):
            self._tell_place(entry, number)

    def _tell_place(self, entry: Entry, number: int) -> None:
        if entry.told != number and entry.wait:
            entry.told = number
            self._actions.append(Waiting(entry.request.id, number, entry.refusal))
