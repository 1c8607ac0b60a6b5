"""The indexes of the core against what they are short for, counted anew after each step.

A stale one would give a card twice, or keep one from everybody. `RGPU_CLUSTER_BOOKS=100000` runs as
many steps; without it, some thousands.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from helpers.counts import count

from cluster.test_machine import QUOTAS, step
from cluster.world import World
from rgpu_cluster.core.book import Book, Stage
from rgpu_cluster.core.card import load_of
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.quotas import Quotas
from rgpu_cluster.core.usage import Usage

STEPS = count("RGPU_CLUSTER_BOOKS", 2000)
SEEDS = 8


def check_book(book: Book, nodes: set[str], gangs: set[str]) -> None:
    """Compares a book with a list of all bookings."""
    every = list(book)
    assert len(book) == len(every)
    for one in every:
        request = one.entry.request.id
        assert request in book
        assert book.get(request) is one
    moving = [one for one in every if one.stage is not Stage.PLACED]
    assert sorted(map(id, book.moving())) == sorted(map(id, moving))
    for node in nodes | {card.node for one in every for card in one.cards}:
        there = [one for one in every if any(card.node == node for card in one.cards)]
        assert sorted(map(id, book.on(node))) == sorted(map(id, there)), node
    for gang in gangs | {one.entry.gang for one in every if one.entry.gang}:
        mine = [one for one in every if one.adopted and one.entry.gang == gang]
        assert sorted(map(id, book.adopted(gang))) == sorted(map(id, mine)), gang


def check_pool(pool: Pool) -> None:
    """Compares a pool with what its cards hold."""
    usage, leases = Usage(), Counter[tuple[str, object]]()
    for card in pool.cards():
        held = pool.holdings(card.id)
        assert pool.load(card.id) == load_of(list(held))
        _, _, state = pool.classes.where(card.id)
        node = pool.node(card.id.node)
        assert node is not None
        idle = sum(one.mig == card.mig and pool.load(one.id).idle for one in node.cards)
        assert (state.load, state.idle_cards) == (load_of(list(held)), idle)
        usage.add_card(card)
        for one in held:
            usage.add(card, one)
            leases[one.lease, card.id] += 1
            assert card.id in pool.leases()[one.lease]
            assert pool.holding(card.id, one.lease) == one
    assert set(leases.values()) <= {1}
    assert sum(map(len, pool.leases().values())) == len(leases)
    assert set(pool.usage.tenants()) == set(usage.tenants())
    assert (pool.usage.total, set(pool.usage.elastic_cards())) == (
        usage.total, set(usage.elastic_cards()),
    )  # fmt: skip
    for tenant in usage.tenants():
        assert pool.usage.of(tenant) == usage.of(tenant)
        assert set(pool.usage.cards_of(tenant)) == set(usage.cards_of(tenant))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_index_is_ever_stale(seed: int) -> None:
    chance = random.Random(1000 + seed)
    world = World(quotas=QUOTAS if seed % 2 else Quotas({}))
    for number in range(5):
        world.add(f"n{number}", 1 + number % 3, slices=2 if number == 1 else 0)
    nodes, gangs = set(world.daemons), set[str]()
    for number in range(STEPS // SEEDS):
        step(world, chance, number)
        gangs |= {entry.gang for entry in world.manager.line if entry.gang}
        check_book(world.manager.book, nodes, gangs)
        check_pool(world.manager.pool)
