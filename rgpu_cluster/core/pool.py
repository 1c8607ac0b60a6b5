"""The pool: nodes, their cards, and the leases on them.

The pool is what the manager knows. The daemon of each node decides whether a lease exists, so a
node's report replaces what the pool thought about that node.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_cluster.core.card import Holding, Load, load_of, size_of
from rgpu_cluster.core.classes import HEADROOM_STEPS, Classes, State, kind_of
from rgpu_cluster.core.errors import PoolError
from rgpu_cluster.core.node import Node, site_of
from rgpu_cluster.core.usage import Usage
from rgpu_common.units import PPM, format_bytes, format_share

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from rgpu_cluster.core.card import Card, CardId

# So many changes of `Pool.room` are remembered with their cards.
_MOST_GAINS = 64


class Pool:
    """Nodes, cards, holdings, and the classes of equal cards.

    room: counts the changes after which a request may fit that did not fit before, or may never fit
        any more. A lease that comes is none.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.room = 0
        self.classes = Classes()
        self.usage = Usage()
        self._nodes: dict[str, Node] = {}
        self._cards: dict[CardId, Card] = {}
        self._holdings: dict[CardId, list[Holding]] = {}
        self._loads: dict[CardId, Load] = {}
        self._bandwidth: dict[str, dict[str, int]] = {}
        self._leases: dict[str, set[CardId]] = {}
        # The last changes of `room`: on which cards there is more of it. None: perhaps on any.
        self._gains: deque[tuple[int, frozenset[CardId] | None]] = deque(maxlen=_MOST_GAINS)
        # The last answer of `gained`: many requests ask the same.
        self._gained: tuple[tuple[int, int], frozenset[CardId] | None] | None = None

    def gained(self, since: int) -> frozenset[CardId] | None:
        """Returns the cards with more room than when `room` was `since`; None: perhaps any."""
        asked = since, self.room
        if self._gained is None or self._gained[0] != asked:
            later = [cards for room, cards in self._gains if room > since and cards is not None]
            complete = len(later) == self.room - since
            self._gained = asked, frozenset().union(*later) if complete else None
        return self._gained[1]

    def _gain(self, cards: Iterable[CardId] | None) -> None:
        """Notes more room on these cards, and on what depends on them."""
        self.room += 1
        if cards is None:
            self._gains.append((self.room, None))
            return
        found = set(cards)
        # Bandwidth is the node's.
        for name in {card.node for card in found}:
            node = self._nodes.get(name)
            if node is not None and node.bandwidth_bps:
                found.update(card.id for card in node.cards)
        self._gains.append((self.room, frozenset(found)))

    def nodes(self) -> Iterable[Node]:
        """Returns the nodes, in the order in which they came."""
        return self._nodes.values()

    def node(self, name: str) -> Node | None:
        """Returns the node with this name, or None."""
        return self._nodes.get(name)

    def card(self, card: CardId) -> Card:
        """Returns a card of the pool; PoolError if it has none with this id."""
        try:
            return self._cards[card]
        except KeyError:
            raise PoolError(f"the pool has no card {card}") from None

    def cards(self) -> Iterator[Card]:
        """Yields all cards."""
        yield from self._cards.values()

    def load(self, card: CardId) -> Load:
        """Returns what leases take of a card."""
        return self._loads[card]

    def holdings(self, card: CardId) -> tuple[Holding, ...]:
        """Returns the leases on a card."""
        return tuple(self._holdings[card])

    def leases(self) -> Mapping[str, set[CardId]]:
        """Returns the cards of every lease."""
        return self._leases

    def free_bandwidth(self, node: Node) -> int:
        """Returns the bandwidth of a node, in bits a second, that no lease has reserved."""
        return node.bandwidth_bps - sum(self._bandwidth[node.name].values())

    def report(self, node: Node, held: Mapping[CardId, Iterable[Holding]]) -> bool:
        """Takes a node's report: its cards, and the leases that its daemon has.

        Returns False if a report of a later generation is known; then nothing changes. `held` also
        has the reservations that the daemon does not know yet, or they are gone.
        """
        known = self._nodes.get(node.name)
        if known is not None and node.generation < known.generation:
            return False
        reserved = {} if known is None else self._bandwidth[node.name]
        gains: list[CardId] | None = [card.id for card in node.cards]
        if known is not None:
            gains = self._with_more_room(known, node, held)
            self._forget(known)
        self._nodes[node.name] = node
        self._bandwidth[node.name] = {}
        for card in node.cards:
            self._cards[card.id] = card
            self.usage.add_card(card)
            self._holdings[card.id] = list(held.get(card.id, ()))
            self._loads[card.id] = load_of(self._holdings[card.id])
            for holding in self._holdings[card.id]:
                self._leases.setdefault(holding.lease, set()).add(card.id)
                self.usage.add(card, holding)
        present = {h.lease for card in node.cards for h in self._holdings[card.id]}
        self._bandwidth[node.name] = {k: v for k, v in reserved.items() if k in present}
        self._classify(node)
        self.generation += 1
        if gains is None or gains or known is None:
            self._gain(gains)
        return True

    def taint(self, name: str, word: str) -> None:
        """Keeps new leases off a node until its next report."""
        node = self._nodes[name]
        self._nodes[name] = replace(node, taints=node.taints | {word})
        self._classify(self._nodes[name])
        self.generation += 1

    def lose(self, name: str) -> list[str]:
        """Removes a node. Returns the leases that have no card any more."""
        node = self._nodes.get(name)
        if node is None:
            return []
        before = {h.lease for card in node.cards for h in self._holdings[card.id]}
        self._forget(node)
        self.generation += 1
        self._gain(None)
        return sorted(lease for lease in before if lease not in self._leases)

    def take(self, card: CardId, holding: Holding, bandwidth_bps: int = 0) -> None:
        """Puts a lease on a card; PoolError if the card has no room for it."""
        self._check_room(card, holding)
        self.claim(card, holding, bandwidth_bps)

    def claim(self, card: CardId, holding: Holding, bandwidth_bps: int = 0) -> None:
        """Puts a lease on a card on which others are still to make room for it."""
        self._holdings[card].append(holding)
        self.usage.add(self._cards[card], holding)
        self._leases.setdefault(holding.lease, set()).add(card)
        if bandwidth_bps:
            taken = self._bandwidth[card.node]
            taken[holding.lease] = taken.get(holding.lease, 0) + bandwidth_bps
        self._changed(card)

    def resize(self, card: CardId, lease: str, new: Holding) -> None:
        """Changes what a lease has of a card."""
        place = next(i for i, h in enumerate(self._holdings[card]) if h.lease == lease)
        old = self._holdings[card][place]
        self.usage.add(self._cards[card], old, -1)
        self.usage.add(self._cards[card], new)
        self._holdings[card][place] = new
        if new.share_ppm < old.share_ppm or new.memory_bytes < old.memory_bytes:
            self._gain((card,))
        self._changed(card)

    def holding(self, card: CardId, lease: str) -> Holding | None:
        """Returns what a lease has of a card; None if it is not there."""
        return next((h for h in self._holdings.get(card, ()) if h.lease == lease), None)

    def release(self, lease: str, *, undone: bool = False) -> bool:
        """Removes a lease from all of its cards. Returns False if there is no such lease.

        undone: it was put there a moment ago, so there is no more room than before.
        """
        cards = self._leases.pop(lease, None)
        if cards is None:
            return False
        if not undone:
            self._gain(cards)
        for card in sorted(cards):
            for holding in self._holdings[card]:
                if holding.lease == lease:
                    self.usage.add(self._cards[card], holding, -1)
            self._holdings[card] = [h for h in self._holdings[card] if h.lease != lease]
            self._bandwidth[card.node].pop(lease, None)
            self._changed(card)
        return True

    def _with_more_room(
        self, known: Node, node: Node, held: Mapping[CardId, Iterable[Holding]]
    ) -> list[CardId] | None:
        """Returns the cards of which a node reports more than the same leases, and perhaps new
        ones; None: a card has gone, so that a request may never fit any more.
        """
        if {card.id for card in known.cards} - {card.id for card in node.cards}:
            return None
        if replace(known, generation=node.generation) != node:
            return [card.id for card in node.cards]
        return [
            card.id
            for card in node.cards
            if not {size_of(h) for h in self._holdings[card.id]}
            <= {size_of(h) for h in held.get(card.id, ())}
        ]

    def _check_room(self, card: CardId, holding: Holding) -> None:
        total, load = self.card(card), self._loads[card]
        if any(h.lease == holding.lease for h in self._holdings[card]):
            raise PoolError(f"lease {holding.lease} is on card {card} already")
        if load.whole or (holding.whole and not load.idle):
            raise PoolError(f"card {card} cannot be shared: a lease has it alone")
        if load.used_ppm + holding.share_ppm > PPM:
            left = format_share(PPM - load.used_ppm)
            raise PoolError(f"card {card} has {left} left, not {format_share(holding.share_ppm)}")
        if load.used_bytes + holding.memory_bytes > total.memory_bytes:
            left = format_bytes(total.memory_bytes - load.used_bytes)
            raise PoolError(
                f"card {card} has {left} left, not {format_bytes(holding.memory_bytes)}"
            )

    def _changed(self, card: CardId) -> None:
        was_idle = self._loads[card].idle
        self._loads[card] = load_of(self._holdings[card])
        node = self._nodes[card.node]
        self.generation += 1
        if was_idle == self._loads[card].idle and not node.bandwidth_bps:
            kind = self._cards[card]
            self._classify_card(kind, node, self._idle_cards(node)[kind.mig])
        else:
            self._classify(node)

    def _idle_cards(self, node: Node) -> Counter[str]:
        """Returns how many GPUs, and how many slices of each MIG profile, are idle."""
        return Counter(card.mig for card in node.cards if self._loads[card.id].idle)

    def _classify(self, node: Node) -> None:
        idle = self._idle_cards(node)
        for card in node.cards:
            self._classify_card(card, node, idle[card.mig])

    def _classify_card(self, card: Card, node: Node, idle: int) -> None:
        headroom = 0
        if node.bandwidth_bps:
            headroom = max(self.free_bandwidth(node), 0) * HEADROOM_STEPS // node.bandwidth_bps
        state = State(self._loads[card.id], idle, headroom, node.bandwidth_bps)
        self.classes.put(card.id, kind_of(card), site_of(node), state)

    def _forget(self, node: Node) -> None:
        for card in node.cards:
            self.classes.drop(card.id)
            self.usage.add_card(card, -1)
            for holding in self._holdings.pop(card.id):
                self.usage.add(card, holding, -1)
                cards = self._leases[holding.lease]
                cards.discard(card.id)
                if not cards:
                    del self._leases[holding.lease]
            del self._loads[card.id]
            del self._cards[card.id]
        del self._bandwidth[node.name]
        del self._nodes[node.name]
