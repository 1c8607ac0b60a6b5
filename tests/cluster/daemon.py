"""A daemon as the manager's tests need it: the authority over one node."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from msgspec.structs import replace

from cluster.samples import GIB
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Abandon, Grant, Resize
from rgpu_cluster.core.card import CardId, Holding
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.node import Node
from rgpu_cluster.core.request import holding_of
from rgpu_common.units import PPM


def attempt_of(there: dict[CardId, Holding]) -> int:
    """The attempt of a lease, which is the same on all of its cards."""
    return next(iter(there.values())).attempt


@dataclass
class Daemon:
    """The authority over one node: it grants what fits, once for each id."""

    node: Node
    leases: dict[str, dict[CardId, Holding]] = field(default_factory=dict)
    used: dict[tuple[str, CardId], int] = field(default_factory=dict)
    grants: int = 0
    dead: dict[str, int] = field(default_factory=dict)
    # When each reservation ends, by the daemon's own clock; those for which a program has come.
    ends: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    granted_ns: dict[str, int] = field(default_factory=dict)
    up: bool = True

    def touch(self) -> None:
        self.node = replace(self.node, generation=self.node.generation + 1)

    def connect(self) -> None:
        """The agent connects anew, so that its next report is news."""
        if not self.up:
            self.up = True
            self.touch()

    def on(self, card: CardId) -> list[Holding]:
        """What the leases have of a card."""
        return [there[card] for there in self.leases.values() if card in there]

    def allocate(self, chance: random.Random) -> None:
        """A program takes memory within its lease, or frees it."""
        if self.leases:
            lease = chance.choice(sorted(self.leases))
            card = chance.choice(sorted(self.leases[lease]))
            most = self.leases[lease][card].memory_bytes
            self.used[lease, card] = min(chance.choice((0, 1, 4, 16)) * GIB, most)

    def resize(self, order: Resize) -> ev.Resized:
        """Never smaller than what is used, nor larger than there is room for."""
        there = self.leases.get(order.id, {}).get(order.card)
        if there is None or there.attempt != order.attempt:
            return ev.Resized(
                order.id, order.card, order.attempt, order.number, 0, 0, 0,
                self.node.generation, there=False,
            )  # fmt: skip
        used = self.used.get((order.id, order.card), 0)
        assert there.elastic is not None
        if order.number > there.order:
            assert order.share_ppm >= there.elastic.least_ppm
            memory = max(order.memory_bytes, used)
            new = replace(there, share_ppm=order.share_ppm, memory_bytes=memory, order=order.number)
            del self.leases[order.id][order.card]
            if not self.room((order.card,), new):
                new = replace(there, order=order.number)
            self.leases[order.id][order.card] = there = new
            self.touch()
        return ev.Resized(
            order.id, order.card, order.attempt, order.number, there.share_ppm,
            there.memory_bytes, max(there.elastic.least_bytes, used), self.node.generation,
        )  # fmt: skip

    def room(self, cards: tuple[CardId, ...], more: Holding) -> bool:
        for card in self.node.cards:
            if card.id not in cards:
                continue
            mine = self.on(card.id)
            time = sum(h.share_ppm for h in mine) + more.share_ppm
            memory = sum(h.memory_bytes for h in mine) + more.memory_bytes
            alone = any(h.whole for h in mine) or (more.whole and mine)
            if time > PPM or memory > card.memory_bytes or alone:
                return False
        return True

    def grant(self, action: Grant, now_ns: int = 0) -> ev.Granted | ev.GrantFailed:
        request = action.request
        name, attempt = self.node.name, action.attempt
        if attempt <= self.dead.get(request.id, 0):
            return ev.GrantFailed(request.id, name, attempt, "revoked", certain=True)
        self.grants += 1
        mine = replace(holding_of(request, 16 * GIB, attempt), since=self.grants)
        if request.id in self.leases:
            if attempt_of(self.leases[request.id]) != attempt:
                return ev.GrantFailed(request.id, name, attempt, "another attempt", certain=True)
        else:
            if not self.room(action.cards, mine):
                return ev.GrantFailed(request.id, name, attempt, "no room", certain=True)
            self.leases[request.id] = dict.fromkeys(action.cards, mine)
            self.granted_ns[request.id] = now_ns
            if request.reserved:
                self.ends[request.id] = now_ns + request.reserve_seconds * SECOND
            for card in action.cards:
                self.used.pop((request.id, card), None)
            self.touch()
        return ev.Granted(request.id, name, attempt, self.node.generation)

    def revoke(self, request: str, attempt: int) -> ev.Revoked:
        self.dead[request] = max(self.dead.get(request, 0), attempt)
        if request in self.leases and attempt_of(self.leases[request]) <= attempt:
            self.drop(request)
        return ev.Revoked(request, self.node.name, attempt)

    def drop(self, request: str) -> None:
        del self.leases[request]
        self.ends.pop(request, None)
        self.begun.discard(request)
        self.touch()

    def abandon(self, order: Abandon) -> None:
        """Ends the lease if no program has come for it."""
        held = self.leases.get(order.id)
        if held is None or attempt_of(held) != order.attempt or order.id in self.ends:
            return
        if order.id not in self.begun:
            self.drop(order.id)

    def expire(self, now_ns: int) -> None:
        """Ends the reservations whose time is over. The manager is not asked."""
        for request in [request for request, end in self.ends.items() if end <= now_ns]:
            self.drop(request)

    def unclaimed(self, now_ns: int) -> list[str]:
        """Returns the runs for which no program has come within a minute."""
        waiting = self.leases.keys() - self.ends.keys() - self.begun
        return sorted(run for run in waiting if now_ns - self.granted_ns[run] >= 60 * SECOND)

    def as_told(self, one: Holding, card: CardId) -> Holding:
        if one.elastic is None:
            return one
        least = max(one.elastic.least_bytes, self.used.get((one.lease, card), 0))
        return replace(one, elastic=replace(one.elastic, least_bytes=least))

    def report(self) -> ev.NodeReported:
        held: dict[CardId, tuple[Holding, ...]] = {}
        for there in self.leases.values():
            for card, one in there.items():
                held[card] = (*held.get(card, ()), self.as_told(one, card))
        return ev.NodeReported(self.node, held)
