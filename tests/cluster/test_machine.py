"""Random arrivals, departures, lost messages, lost nodes and restarts against the manager.

`RGPU_CLUSTER_STEPS=1000000` runs as many steps; without it some thousands, with `--all` ten thousand.
"""

from __future__ import annotations

import random

import pytest
from helpers.counts import count
from msgspec.structs import replace

from cluster.giving import check_grown, somebody_gives_way
from cluster.samples import GIB, PERCENT
from cluster.world import World
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.book import Stage
from rgpu_cluster.core.card import CardId, Labels, size_of
from rgpu_cluster.core.choices import choose, numbers_of, over_quota
from rgpu_cluster.core.decision import Refusal
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.quotas import Accounts, Quotas, TenantQuota
from rgpu_cluster.core.request import Client, Request
from rgpu_cluster.core.score import PRESETS
from rgpu_cluster.core.together import place_all
from rgpu_common.units import PPM

STEPS = count("RGPU_CLUSTER_STEPS", 4000)
SEEDS = 20
# More would only make the line, and a long run, longer.
MOST_ALIVE = 60
QUOTAS = Quotas(
    {
        "a": TenantQuota(share_ppm=2 * PPM, borrow=True),
        "b": TenantQuota(share_ppm=3 * PPM, memory_bytes=48 * GIB, borrow=True),
    }
)


def random_request(chance: random.Random, number: int) -> Request:
    whole = chance.random() < 0.25
    share = PPM if whole else chance.choice((0, 10, 30, 50, 100)) * PERCENT
    memory = chance.choice((1, 4, 8, 10)) * GIB
    leasts = {}
    if not whole and chance.random() < 0.5:
        leasts["least_ppm"] = chance.choice((0, share // 2, share))
    if not whole and chance.random() < 0.5:
        leasts["least_bytes"] = chance.choice((0, memory // 2, memory))
    one_node = chance.random() < 0.3
    return Request(
        id=f"run-{number}",
        tenant=chance.choice("abc"),
        share_ppm=share,
        memory_bytes=memory,
        cards=chance.choice((1, 1, 1, 1, 2, 3)),
        whole=whole,
        client=Client("", chance.choice(("r0", "r1"))),
        mig=chance.choice(("", "", "", "1g.10gb")),
        one_node=one_node,
        max_per_node=0 if one_node else chance.choice((0, 0, 1, 2)),
        max_per_rack=0 if one_node else chance.choice((0, 0, 1, 2)),
        max_per_zone=0 if one_node else chance.choice((0, 0, 2)),
        labels=Labels(exclusion=chance.choice(("", "", "", "x"))),
        priority=chance.choice((0, 0, 1)),
        reserve_seconds=chance.choice((0, 0, 0, 0, 5, 60, 600)) if chance.random() < 0.4 else 0,
        **leasts,
    )


def alternatives(chance: random.Random, one: Request, number: int) -> tuple[Request, ...]:
    """What a request takes as well, for some requests."""
    if chance.random() < 0.7:
        return ()
    made = [random_request(chance, number) for _ in range(chance.choice((1, 2, 3)))]
    kept = {name: getattr(one, name) for name in ("id", "tenant", "priority", "reserve_seconds")}
    return tuple(replace(other, **kept) for other in made)


def ask_gang(world: World, chance: random.Random, number: int) -> None:
    """Members that are alike, as the runs of one program are; or not."""
    size, one, alike = chance.choice((2, 3)), random_request(chance, number), chance.random() < 0.6
    for member in range(size):
        if not alike:
            other = random_request(chance, number)
            one = replace(other, tenant=one.tenant, reserve_seconds=one.reserve_seconds)
        mine = replace(one, id=f"{one.id}-{member}")
        others = alternatives(chance, mine, number)
        world.ask(mine, gang=f"gang-{number}", size=size, others=others)


def step(world: World, chance: random.Random, number: int) -> None:
    """One thing that happens."""
    world.pass_time(chance.choice((0, SECOND // 10, SECOND, 4 * SECOND)))
    world.expire()
    roll = chance.random()
    if roll < 0.2 and len(world.alive) < MOST_ALIVE:
        one = random_request(chance, number)
        world.ask(one, others=alternatives(chance, one, number))
    elif roll < 0.25 and len(world.alive) < MOST_ALIVE:
        ask_gang(world, chance, number)
    elif roll < 0.28 and world.told:
        run = chance.choice(sorted(world.told))
        if not world.alive[run].reserved:
            (world.come if chance.random() < 0.5 else world.die)(run)
    elif roll < 0.3:
        world.daemons[chance.choice(sorted(world.daemons))].allocate(chance)
    elif roll < 0.4 and world.alive:
        world.end(chance.choice(sorted(world.alive)))
    elif roll < 0.65 and world.post:
        world.deliver(chance.randrange(100), lose_reply=chance.random() < 0.1)
    elif roll < 0.8 and world.replies:
        reply = world.replies.pop(chance.randrange(len(world.replies)))
        world.tell(reply)
        if chance.random() < 0.2:
            world.tell(reply)  # a message that arrives twice
    elif roll < 0.9:
        for daemon in world.daemons.values():
            if daemon.up and chance.random() < 0.9:
                world.tell(daemon.report())
        world.tell(ev.Tick())
    elif roll < 0.93:
        daemon = world.daemons[chance.choice(sorted(world.daemons))]
        if daemon.up:
            daemon.up = False
            world.tell(ev.NodeCut(daemon.node.name))
        else:
            daemon.connect()
    elif roll < 0.94:
        # A clock that jumps, back or forward.
        world.now_ns = max(world.now_ns + chance.choice((-60, 60)) * SECOND, 0)
        world.tell(ev.Tick())
    elif roll < 0.945:
        world.restart_manager()


def check_never_above_a_card(world: World) -> None:
    """No daemon has granted more than a card, and the pool promises no card twice."""
    for daemon in world.daemons.values():
        for card in daemon.node.cards:
            mine = daemon.on(card.id)
            assert sum(h.share_ppm for h in mine) <= PPM
            assert sum(h.memory_bytes for h in mine) <= card.memory_bytes
    for card in world.manager.pool.cards():
        held = [h.lease for h in world.manager.pool.holdings(card.id)]
        assert len(held) == len(set(held))


def bring_to_rest(world: World) -> None:
    """Everybody comes back, and all messages arrive."""
    for daemon in world.daemons.values():
        daemon.connect()
    world.pass_time(100 * SECOND)
    world.expire()
    world._again()
    world.tell(ev.Tick())
    world.settle()
    world.expire()
    world._again()
    world.settle()


def check_at_rest(world: World) -> None:
    """No lease is lost or left over, and no request waits for a free card."""
    bring_to_rest(world)
    assert all(booking.stage is Stage.PLACED for booking in world.manager.book)
    held = check_leases(world)
    check_books(world, held)
    check_line(world)
    check_grown(world)


def check_leases(world: World) -> dict[str, set[CardId]]:
    """Asserts that each client has all of its cards, or waits; returns the cards of each lease."""
    held: dict[str, set[CardId]] = {}
    attempts: dict[str, set[int]] = {}
    for daemon in world.daemons.values():
        for request, there in daemon.leases.items():
            held.setdefault(request, set()).update(there)
            attempts.setdefault(request, set()).update(one.attempt for one in there.values())
    for request, cards_of in held.items():
        sizes = {one.cards for one in (world.alive[request], *world.others[request])}
        assert len(cards_of) in sizes, "a request with some of its cards"
        assert len(attempts[request]) == 1
        told = world.told.get(request)
        assert told is None or set(told) == cards_of, "a program runs on other cards"
    assert set(held) <= set(world.alive), "a lease without a client"
    waiting = {entry.request.id for entry in world.manager.line}
    assert set(world.alive) == set(held) | waiting, "a request was lost"
    return held


def check_books(world: World, held: dict[str, set[CardId]]) -> None:
    """Asserts that the manager believes of each card what its daemon has."""
    pool = world.manager.pool
    shown = {one.lease for card in pool.cards() for one in pool.holdings(card.id) if one.reserved}
    assert shown <= set(held), "room is kept for a reservation that is over"
    for request in held:
        assert set(pool.leases()[request]) >= held[request]
    for daemon in world.daemons.values():
        for card in daemon.node.cards:
            there = {h.lease: size_of(h) for h in pool.holdings(card.id)}
            assert there == {
                h.lease: size_of(daemon.as_told(h, card.id)) for h in daemon.on(card.id)
            }, "the books differ"


def check_line(world: World) -> None:
    """Asserts that no request waits that could have cards, by itself or because others give way."""
    pool, line = world.manager.pool, world.manager.line
    accounts = Accounts(world.quotas, pool)
    accounts.begin()
    gangs = [(entry, line.gang(entry.gang) if entry.gang else [entry]) for entry in line]
    # The others of an incomplete gang have ended before it began.
    whole = [(entry, gang) for entry, gang in gangs if len(gang) >= entry.gang_size]
    for _, gang in whole:
        for number in numbers_of(gang):
            asked = [one.at(number) for one in gang]
            if not accounts.why_not(asked)[0]:
                accounts.not_placed(*asked)
    for entry, gang in whole:
        over = over_quota(gang, accounts, line, 0)
        for number in set(numbers_of(gang)) - set(over):
            choose(gang, number)
            answer = place_all(pool, gang, world.manager.paths, PRESETS["fgd"])
            assert isinstance(answer, Refusal), "a card is free while a fitting request waits"
            assert not somebody_gives_way(world, [one.request for one in gang]), entry
        choose(gang, 0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_nothing_is_lost_left_over_or_promised_twice(seed: int) -> None:
    chance = random.Random(seed)
    world = World(quotas=QUOTAS if seed % 2 else Quotas({}))
    for number in range(5):
        world.add(f"n{number}", 1 + number % 3, slices=2 if number == 1 else 0)
    for number in range(STEPS // SEEDS):
        step(world, chance, number)
        check_never_above_a_card(world)
        if number % 100 == 99:
            check_at_rest(world)
    check_at_rest(world)
