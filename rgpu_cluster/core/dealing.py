"""Tries the requests in line, and reserves cards for those that fit."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Any

from rgpu_cluster.core.actions import Denied, Waiting
from rgpu_cluster.core.book import Booking
from rgpu_cluster.core.choices import borrows, choose, numbers_of, over_quota
from rgpu_cluster.core.decision import Refusal, combined
from rgpu_cluster.core.feasible import would_fit
from rgpu_cluster.core.line import members
from rgpu_cluster.core.place import fits
from rgpu_cluster.core.quotas import Accounts
from rgpu_cluster.core.relief import Relief
from rgpu_cluster.core.together import place_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

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
    from rgpu_cluster.core.usage import Use

_WAIT = "; wait for room with --wait"


# More shapes that do not fit are not remembered.
_MOST_FAILED = 4096


# So many looks at one card cost as much as a try of a request.
_LOOKS = 16


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
        self._borrowers: dict[str, Use] = {}
        # Counts what changes beside the pool.
        self._news = 0
        # The state for which the whole line was tried last.
        self._done: tuple[int, ...] = ()
        # Shapes that do not fit in that state.
        self._failed: dict[Request, Refusal] = {}
        self._tries: Counter[str] = Counter()
        self._looks: Counter[str] = Counter()
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
        self._looks.clear()
        self._plans = 0
        before = self._state()
        hopeless = self._hope_ns is not None and now_ns >= self._hope_ns
        # What is newly borrowed may go to an owner that waits.
        borrowers, before_that = self._accounts.borrowers(), self._borrowers
        self._borrowers = borrowers
        if self.relief.take_news(now_ns) or borrowers != before_that:
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
        entry = self._entry(group.order[0])
        request = entry.request
        rank = borrows(entry, self._accounts), -request.priority, self._share_of(request.tenant)
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
        rank = borrows(entry, self._accounts), -request.priority, self._share_of(request.tenant)
        return (*rank, entry.age)

    def _entry(self, age: tuple[int, int, str]) -> Entry:
        entry = self._line.get(age[2])
        assert entry is not None, "a group has only requests that are in line"
        return entry

    def _try(self, entry: Entry, now_ns: int) -> Fate:
        """Tries a request, with its gang."""
        together = members(entry, self._line, len(self._book.adopted(entry.gang)))
        leases = self._pool.leases()
        if together is None:
            self.relief.spare(entry)
        if together is None or any(x.group is None or x.request.id in leases for x in together):
            # Some of the gang are not here yet, or rest; or an earlier lease is being revoked.
            return Fate.PASSED_OVER
        fate, refusal = self._try_together(entry, together, now_ns)
        if fate is Fate.PLACED:
            return fate
        if len(numbers_of(together)) > 1:
            choose(together, 0)
        if refusal is None:
            return fate
        for group in {id(one.group): one.group for one in together}.values():
            if group is not None:
                group.refusal = refusal
                self._give_up_group(group, refusal, now_ns)
        return Fate.REFUSED

    def _try_together(
        self, entry: Entry, together: Sequence[Entry], now_ns: int
    ) -> tuple[Fate, Refusal | None]:
        """Tries the alternatives of a request, or of a gang, that its tenant may have."""
        generation = self._pool.generation
        found = over_quota(together, self._accounts, self._line, generation)
        several = numbers_of(together)
        allowed = [number for number in several if number not in found] if found else several
        if not allowed:
            self.relief.spare(entry)
            return Fate.REFUSED, combined([found[number] for number in several])
        group = entry.group
        if group is not None and self._is_as_before(group, together):
            assert group.refusal is not None, "a group that was tried has a refusal"
            tried = {} if len(several) > 1 else {0: group.refusal}
            self._note_failure(entry, together, allowed, tried)
            return Fate.REFUSED, group.refusal
        fate, tried = self._try_anew(entry, together, allowed, now_ns)
        if fate is not Fate.REFUSED:
            return fate, None
        self._note_failure(entry, together, allowed, tried)
        found.update(tried)
        return fate, combined([found[number] for number in several])

    def _mark(self, together: Sequence[Entry]) -> tuple[int, ...]:
        """Returns the state for which it is noted that a request does not fit. Which of several
        alternatives its tenant may have is a part of that.
        """
        several = len(numbers_of(together)) > 1
        return self._state() if several else (self._pool.room, self._news)

    def _is_as_before(self, group: Group, together: Sequence[Entry]) -> bool:
        """Returns whether a request that did not fit does not fit now either. One for one card is
        compared with the cards alone on which there is more room than at its last try.
        """
        if group.tried == self._mark(together):
            return True
        first, request = together[0], together[0].request
        if not group.tried or group.tried[1] != self._news or group.refusal is None:
            return False
        if len(together) > 1 or request.cards > 1 or first.gang or len(first.choices) > 1:
            return False
        gained = self._pool.gained(group.tried[0])
        if gained is None or self._accounts.owed(request):
            return False
        self._looks[request.tenant] += len(gained)
        if self._looks[request.tenant] > _LOOKS * self._limits.tries:
            return False
        giving = self._pool.usage.elastic_cards()
        return not any(
            card in giving or fits(self._pool, request, self._paths, card) for card in gained
        )

    def _try_anew(
        self, entry: Entry, together: Sequence[Entry], allowed: Sequence[int], now_ns: int
    ) -> tuple[Fate, dict[int, Refusal]]:
        """Looks for cards for each alternative, the best first, and then for leases that give
        way. Returns why there is no room for each.
        """
        tenant = entry.request.tenant
        found: dict[int, Refusal] = {}
        if entry.group is not None and not entry.gang:
            shapes = entry.group.key.shapes
            found = {n: self._failed[shapes[n]] for n in allowed if shapes[n] in self._failed}
        if len(found) < len(allowed) and self._tries[tenant] >= self._limits.tries:
            return Fate.LEFT, {}
        for number in [one for one in allowed if one not in found]:
            choose(together, number)
            self._tries[tenant] += len(together)
            refusal = self._place_all(together, now_ns)
            if refusal is None:
                return Fate.PLACED, {}
            found[number] = refusal
        helped = False
        # First that for which leases end soon: a plan for another one would call that off.
        for number in sorted(allowed, key=lambda number: number != entry.pressed):
            choose(together, number)
            if not (found[number].possible and self.relief.helps(together, self._accounts)):
                continue
            if not helped and self._plans >= self._limits.plans:
                return Fate.LEFT, {}
            helped = True
            self._plans += 1
            if self.relief.make_way(together, self._accounts, now_ns):
                return Fate.PLACED, {}
            if entry.hint:
                for one in together:
                    one.pressed = number
                break
        if not helped:
            self.relief.spare(entry)
        return Fate.REFUSED, found

    def _note_failure(
        self,
        entry: Entry,
        together: Sequence[Entry],
        allowed: Sequence[int],
        tried: Mapping[int, Refusal],
    ) -> None:
        """Notes that nothing of what was tried fits. allowed: what its tenant may have."""
        if not entry.gang and entry.group is not None and len(self._failed) < _MOST_FAILED:
            shapes = entry.group.key.shapes
            self._failed.update((shapes[number], refusal) for number, refusal in tried.items())
        for number in allowed if self._accounts else ():
            self._accounts.not_placed(*(one.at(number) for one in together))
        mark = self._mark(together)
        for one in together:
            if one.group is not None:
                one.group.tried = mark

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
        hope = not refusal.possible and self._could_return(entry, now_ns)
        possible = refusal.possible or hope
        if entry.wait and possible:
            if hope:
                ends = [since + self._limits.absent_ns + 1 for _, since in self.absent.values()]
                self._hope_until(min(ends))
            return False
        self._line.remove(entry.request.id)
        why = entry.refused or refusal.remedy + ((entry.lent or _WAIT) if possible else "")
        self._actions.append(Denied(entry.request.id, why, refusal))
        return True

    def _hope_until(self, time_ns: int) -> None:
        self._hope_ns = time_ns if self._hope_ns is None else min(self._hope_ns, time_ns)

    def _could_return(self, entry: Entry, now_ns: int) -> bool:
        """Returns whether a node that was lost not long ago could take the request."""
        for name, (_, since) in list(self.absent.items()):
            if now_ns - since > self._limits.absent_ns or self._pool.node(name) is not None:
                del self.absent[name]
        nodes = [*self._pool.nodes(), *(node for node, _ in self.absent.values())]
        return bool(self.absent) and any(
            would_fit(nodes, request, self._paths) for request in entry.choices
        )

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
