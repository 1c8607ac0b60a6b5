"""Tries the requests in line, and reserves cards for those that fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from rgpu_cluster.core.actions import Denied, Grant, Waiting
from rgpu_cluster.core.book import Booking
from rgpu_cluster.core.decision import Refusal
from rgpu_cluster.core.feasible import would_fit
from rgpu_cluster.core.line import dominant_shares, members
from rgpu_cluster.core.quotas import Accounts
from rgpu_cluster.core.together import place_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from rgpu_cluster.core.actions import Action
    from rgpu_cluster.core.book import Book
    from rgpu_cluster.core.decision import Decision
    from rgpu_cluster.core.limits import Limits
    from rgpu_cluster.core.line import Entry, Line
    from rgpu_cluster.core.node import Node
    from rgpu_cluster.core.paths import Paths
    from rgpu_cluster.core.pool import Pool
    from rgpu_cluster.core.quotas import Quotas
    from rgpu_cluster.core.request import Request
    from rgpu_cluster.core.score import Weights

_WAIT = "; wait for room with --wait"


def _shape(request: Request) -> Request:
    """Returns what is equal for requests that fit in the same places."""
    return replace(request, id="-", tenant="-")


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
        self._actions: list[Action] = []
        # Counts what changes beside the pool.
        self._news = 0
        # The state for which the line was tried last.
        self._done: tuple[int, int, int] = (-1, -1, -1)
        # A request is in line only because a node may come, so it is denied when none has come.
        self._hoping = False

    def deal(self, now_ns: int) -> list[Action]:
        """Tries the requests in line that may fit now and did not fit before."""
        self._actions = []
        if not self._line or not self._is_news(now_ns):
            return []
        shares = dominant_shares(self._pool) if len(self._line) > 1 else {}
        complete = self._try_all(shares, now_ns)
        self._tell_places(shares)
        self._done = self._state() if complete else (-1, -1, -1)
        return self._actions

    def again(self) -> None:
        """Has the line tried again, although neither it nor the pool has changed."""
        self._news += 1

    def _state(self) -> tuple[int, int, int]:
        return self._pool.generation, self._line.changes, self._news

    def _is_news(self, now_ns: int) -> bool:
        # Who may borrow depends on everybody in line, and costs no search.
        if self._hoping or self._quotas or self._state() != self._done:
            return True
        return any(0 < entry.not_before_ns <= now_ns for entry in self._line)

    def _try_all(self, shares: Mapping[str, int], now_ns: int) -> bool:
        """Returns False if some were left for the next time."""
        self._hoping = False
        failed: dict[Request, Refusal] = {}
        tries: Counter[str] = Counter()
        left = False
        accounts = Accounts(self._quotas, self._pool)
        for entry in self._line.order(shares, accounts.borrows):
            if entry.request.id not in self._line:
                continue  # it was placed, or denied, with its gang
            together = members(entry, self._line, len(self._book.adopted(entry.gang)))
            if entry.not_before_ns <= now_ns:
                entry.not_before_ns = 0
            if together is None or any(one.not_before_ns > now_ns for one in together):
                continue
            if any(one.request.id in self._pool.leases() for one in together):
                continue  # an earlier lease is being revoked
            refusal = self._over_quota(together, accounts)
            if refusal is not None:
                for one in together:
                    one.refusal = refusal
                    self._give_up(one, refusal, now_ns)
                continue
            refusal = self._old_refusal(entry, failed)
            if refusal is None and tries[entry.request.tenant] >= self._limits.tries:
                left = True
                continue
            if refusal is None:
                tries[entry.request.tenant] += len(together)
                refusal = self._place_all(together, now_ns)
            for one in together:
                (accounts.placed if refusal is None else accounts.not_placed)(one.request)
            if refusal is not None:
                self._refused(entry, together, refusal, failed)
                for one in together:
                    self._give_up(one, refusal, now_ns)
        return not left

    def _over_quota(self, together: Sequence[Entry], accounts: Accounts) -> Refusal | None:
        why, possible = accounts.why_not([one.request for one in together])
        if not why:
            return None
        return Refusal(together[0].request, self._pool.generation, (), possible, why)

    def _old_refusal(self, entry: Entry, failed: Mapping[Request, Refusal]) -> Refusal | None:
        """Returns why the request does not fit, if that is known already."""
        if entry.tried == (self._pool.generation, self._news):
            return entry.refusal
        return None if entry.gang else failed.get(_shape(entry.request))

    def _refused(
        self,
        entry: Entry,
        together: Iterable[Entry],
        refusal: Refusal,
        failed: dict[Request, Refusal],
    ) -> None:
        if not entry.gang:
            failed[_shape(entry.request)] = refusal
        for one in together:
            one.refusal = refusal
            one.tried = self._pool.generation, self._news

    def _give_up(self, entry: Entry, refusal: Refusal, now_ns: int) -> None:
        """Denies a request that does not wait, or that no node can ever take."""
        if entry.wait and entry.passing:
            entry.unbar()
            entry.rest(now_ns, self._limits)
            return
        if now_ns < self._limits.start_ns and not refusal.possible:
            self._hoping = True
            return
        hope = not refusal.possible and self._could_return(entry.request, now_ns)
        possible = refusal.possible or hope
        self._hoping |= hope and entry.wait
        if entry.wait and possible:
            return
        self._line.remove(entry.request.id)
        why = entry.refused or refusal.remedy + (_WAIT if possible else "")
        self._actions.append(Denied(entry.request.id, why, refusal))

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
            self._reserve(entry, decision, now_ns)
        return None

    def _reserve(self, entry: Entry, decision: Decision, now_ns: int) -> None:
        self._line.remove(entry.request.id)
        booking = Booking(entry, decision, since_ns=now_ns)
        booking.waiting_for = set(booking.nodes())
        self._book.add(booking)
        for node in booking.nodes():
            cards = booking.cards_on(node)
            first = decision.chosen.cards.index(cards[0])
            self._actions.append(Grant(entry.request, node, cards, entry.attempt, first))

    def _tell_places(self, shares: Mapping[str, int]) -> None:
        for number, entry in enumerate(self._line.order(shares), start=1):
            if entry.told != number and entry.wait:
                entry.told = number
                self._actions.append(Waiting(entry.request.id, number, entry.refusal))
