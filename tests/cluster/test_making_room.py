"""Gangs and requests for several cards: leases make room for all of it, or for nobody."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from cluster.samples import GIB, PERCENT, node, pool_of, request
from cluster.world import LIMITS, World
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Action, Announced, Denied, Grant, Resize, Revoke
from rgpu_cluster.core.card import CardId, Elastic, Holding
from rgpu_cluster.core.domains import Taken, bounds_of
from rgpu_cluster.core.limits import SECOND, Limits
from rgpu_cluster.core.making_room import plan
from rgpu_cluster.core.manager import Manager
from rgpu_cluster.core.paths import Paths
from rgpu_cluster.core.pool import Pool
from rgpu_cluster.core.pressure import Rules
from rgpu_cluster.core.quotas import Quotas, TenantQuota
from rgpu_cluster.core.request import Request
from rgpu_common.units import PPM


def elastic(number: int, least: int = 20, **options: object) -> Holding:
    """A lease of all of a card's time that may shrink to so many percent."""
    size = Elastic(least * PERCENT, GIB, PPM, 8 * GIB)
    options = {"attempt": 1, "elastic": size, **options}
    return Holding(f"old-{number}", str(options.pop("tenant", "b")), PPM, 8 * GIB, **options)


def full(*leasts: int, **options: object) -> Manager:
    """A node for each number, with one card that an elastic lease has."""
    manager = Manager(limits=options.pop("limits", LIMITS))
    for number, least in enumerate(leasts):
        name = f"n{number}"
        held = {CardId(name, 0): (elastic(number, least, **options),)}
        manager.handle(ev.NodeReported(node(name), held), 0)
    return manager


def ask(manager: Manager, requests: Iterable[Request], *, wait: bool = True) -> list[Action]:
    asked, said = list(requests), []
    for one in asked:
        gang = "g" if len(asked) > 1 else ""
        said += manager.handle(ev.Asked(one, wait, gang=gang, gang_size=len(asked)), 0)
    return said


def of(kind: type, said: Iterable[Action]) -> list:
    return [one for one in said if isinstance(one, kind)]


def obey(manager: Manager, order: Resize, now_ns: int = 0) -> list[Action]:
    there = manager.pool.node(order.card.node)
    answer = ev.Resized(
        order.id, order.card, order.attempt, order.number, order.share_ppm, order.memory_bytes,
        GIB, there.generation + 1,
    )  # fmt: skip
    return manager.handle(answer, now_ns)


def pass_time(manager: Manager, seconds: int, *alive: str) -> list[Action]:
    """Lets time pass; only these nodes are heard of. Returns what was said."""
    said = []
    for second in range(1, seconds + 1):
        for name in alive:
            said += manager.handle(ev.NodeBeat(name, 1), second * SECOND)
        said += manager.handle(ev.Tick(), second * SECOND)
    return said


def gang(size: int, share: int = 50, **options: object) -> list[Request]:
    return [request(i, share_ppm=share * PERCENT, memory_bytes=GIB, **options) for i in range(size)]


def test_leases_make_room_for_a_gang_and_it_is_granted_together() -> None:
    manager = full(20, 20)
    orders = of(Resize, ask(manager, gang(2)))
    assert {(one.id, one.share_ppm) for one in orders} == {
        ("old-0", 50 * PERCENT),
        ("old-1", 50 * PERCENT),
    }
    assert of(Grant, obey(manager, orders[0])) == []
    assert len(of(Grant, obey(manager, orders[1]))) == 2


def test_leases_make_room_for_a_request_for_cards_of_several_nodes() -> None:
    manager = full(20, 20, 80)
    orders = of(Resize, ask(manager, [request(share_ppm=50 * PERCENT, cards=2)]))
    assert {one.id for one in orders} == {"old-0", "old-1"}
    said = [action for order in orders for action in obey(manager, order)]
    assert {one.node for one in of(Grant, said)} == {"n0", "n1"}


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("asked", [gang(2), [request(share_ppm=50 * PERCENT, cards=2)]])
def test_nobody_shrinks_if_one_card_is_missing(asked: list[Request], wait: bool) -> None:
    manager = full(20, 80)
    said = ask(manager, asked, wait=wait)
    assert of(Resize, said) == []
    assert len(of(Denied, said)) == (0 if wait else len(asked))
    assert len(manager.line) == (len(asked) if wait else 0)


def test_two_members_on_one_card_are_given_the_sum() -> None:
    manager = full(20)
    (order,) = of(Resize, ask(manager, gang(2, share=40)))
    assert order.share_ppm == 20 * PERCENT
    assert len(of(Grant, obey(manager, order))) == 2


def test_bounds_hold_while_leases_make_room() -> None:
    manager = full(0, 0)
    orders = of(Resize, ask(manager, gang(2, share=40, max_per_node=1)))
    assert {one.card.node for one in orders} == {"n0", "n1"}
    manager = full(0)
    assert of(Resize, ask(manager, gang(2, share=40, max_per_node=1))) == []


def test_a_gang_counts_with_its_lowest_priority() -> None:
    manager = full(20, 20, priority=1)
    high, low = (replace(one, priority=2 - i) for i, one in enumerate(gang(2)))
    assert len(of(Resize, ask(manager, [high, low]))) == 2
    manager = full(20, 20, priority=1)
    assert of(Resize, ask(manager, [high, replace(low, priority=0)])) == []


def test_all_go_back_in_line_if_one_card_is_not_free_in_time() -> None:
    manager = full(20, 20)
    orders = of(Resize, ask(manager, gang(2)))
    obey(manager, orders[0])
    pass_time(manager, LIMITS.clear_ns // SECOND + 1, "n0", "n1")
    assert {entry.request.id for entry in manager.line} == {"run-0", "run-1"}
    assert set(manager.pool.leases()) == {"old-0", "old-1"}


@pytest.mark.parametrize("granted", [True, False])
def test_a_gang_that_loses_a_node_is_placed_anew_together(granted: bool) -> None:
    """One member alone would wait for ever for the others, which have cards."""
    manager = full(20, 20, limits=Limits(silence_ns=3 * SECOND))
    said = ask(manager, gang(2))
    if granted:
        said = [action for order in of(Resize, said) for action in obey(manager, order)]
        grant = next(one for one in of(Grant, said) if one.node == "n0")
        manager.handle(ev.Granted(grant.request.id, "n0", 1, 5), 0)
    pass_time(manager, 4, "n0")
    assert manager.pool.node("n1") is None
    for booking in manager.book:
        manager.handle(ev.Revoked(booking.entry.request.id, "n0", 1), 20 * SECOND)
    assert {entry.request.id for entry in manager.line} == {"run-0", "run-1"}
    assert not len(manager.book)


def test_the_others_wait_if_a_member_leaves_before_it_has_cards() -> None:
    manager = full(20, 20)
    ask(manager, gang(2))
    manager.handle(ev.Withdrawn("run-0"), 0)
    assert [entry.request.id for entry in manager.line] == ["run-1"]
    assert not len(manager.book)


def test_a_lease_that_cannot_grow_is_not_asked_again_and_again() -> None:
    """The node has less room than it has said."""
    manager = full(20)
    ask_one = request(share_ppm=50 * PERCENT)
    (order,) = of(Resize, ask(manager, [ask_one]))
    said = obey(manager, order)
    (grant,) = of(Grant, said)
    manager.handle(ev.Granted(ask_one.id, "n0", 1, 3), 0)
    (grows,) = of(Resize, manager.handle(ev.Withdrawn(ask_one.id), 0)
                  + manager.handle(ev.Revoked(ask_one.id, "n0", grant.attempt), 0))  # fmt: skip
    assert grows.share_ppm == PPM
    said = obey(manager, replace(grows, share_ppm=60 * PERCENT))
    assert of(Resize, said) == []


# What is borrowed.

OWNER = Quotas({"a": TenantQuota(share_ppm=2 * PPM), "b": TenantQuota(share_ppm=0, borrow=True)})


def borrowed(number: int, **options: object) -> Holding:
    return Holding(f"old-{number}", "b", PPM, 8 * GIB, attempt=1, **options)


def lent(*names: str, quotas: Quotas = OWNER, limits: Limits = LIMITS) -> Manager:
    manager = Manager(limits=limits, quotas=quotas)
    for number, name in enumerate(names):
        held = {CardId(name, 0): (borrowed(number),)}
        manager.handle(ev.NodeReported(node(name), held), 0)
    return manager


def test_what_a_gang_is_owed_comes_back_after_a_grace() -> None:
    manager = lent("n0", "n1", "n2")
    said = of(Announced, ask(manager, gang(2, share=100)))
    assert len(said) == 2
    assert all(not one.over for one in said)
    later = of(Announced, pass_time(manager, 6, "n0", "n1", "n2"))
    over = [one for one in later if one.over]
    assert {one.id for one in over} == {one.id for one in said}


def test_an_announced_end_is_taken_back_if_the_gang_is_no_longer_complete() -> None:
    manager = lent("n0", "n1")
    assert len(of(Announced, ask(manager, gang(2, share=100)))) == 2
    manager.handle(ev.Withdrawn("run-0"), 0)
    manager.handle(ev.Tick(), 0)
    assert manager.relief.rests


def test_a_gang_beyond_its_quota_ends_nobody() -> None:
    manager = lent("n0", "n1", "n2")
    assert of(Announced, ask(manager, gang(3, share=100))) == []


def test_no_lease_ends_for_an_owner_that_does_not_wait_unless_the_grace_is_0() -> None:
    manager = lent("n0")
    said = ask(manager, [request(9, share_ppm=PPM)], wait=False)
    assert of(Announced, said) == []
    (denied,) = of(Denied, said)
    assert denied.why == (
        "no card has room for it now; its room is lent to tenants beyond their quotas: --wait gets "
        "it back within 5 s"
    )
    # Whom nothing is owed nothing is lent.
    (denied,) = of(Denied, ask(lent("n0"), [request(9, share_ppm=PPM, tenant="c")], wait=False))
    assert denied.why.endswith("; wait for room with --wait")
    manager = lent("n0", limits=Limits(grace_ns=0))
    said = ask(manager, [request(9, share_ppm=PPM)], wait=False)
    assert (len(of(Revoke, said)), of(Denied, said)) == (1, [])


def test_no_more_ends_than_the_borrower_has_beyond_its_quota() -> None:
    """Tenant b owns one of its two cards."""
    mine = Quotas({"a": TenantQuota(share_ppm=2 * PPM), "b": TenantQuota(PPM, borrow=True)})
    manager = lent("n0", "n1", quotas=mine)
    assert of(Announced, ask(manager, gang(2, share=100))) == []
    assert len(of(Announced, ask(manager, [request(9, share_ppm=PPM)]))) == 1


def test_a_lease_of_several_cards_ends_with_all_of_them() -> None:
    """When one of two has ended, tenant b has less than it owns, so the other one stays."""
    quotas = Quotas({"a": TenantQuota(PPM), "b": TenantQuota(2 * PPM, borrow=True)})
    manager = Manager(limits=LIMITS, quotas=quotas)
    both = tuple(replace(borrowed(number), share_ppm=PPM // 2) for number in range(2))
    for name, cards, model in (("n0", 1, "H100"), ("n1", 2, "A100")):
        held = {CardId(name, number): both for number in range(cards)}
        manager.handle(ev.NodeReported(node(name, cards, model=model), held), 0)
    assert of(Announced, ask(manager, [request(1, whole=True, model="H100")])) == []
    manager.handle(ev.Withdrawn("run-1"), 0)
    assert len(of(Announced, ask(manager, [request(2, share_ppm=PPM // 2, model="H100")]))) == 1


def test_who_begins_to_borrow_gives_way_to_an_owner_that_waits_already() -> None:
    """Tenant b owns what it has, until it takes a card of another model as well."""
    quotas = Quotas({"a": TenantQuota(PPM), "b": TenantQuota(PPM, borrow=True)})
    manager = lent("n0", quotas=quotas)
    manager.handle(ev.NodeReported(node("n1", model="A100"), {}), 0)
    assert of(Announced, ask(manager, [request(1, whole=True, model="H100")])) == []
    more = request(2, tenant="b", whole=True, model="A100")
    assert of(Grant, ask(manager, [more]))
    said = manager.handle(ev.Tick(), 0) + manager.handle(ev.Tick(), 0)
    assert [one.id for one in of(Announced, said)] == ["old-0"]


def many(count: int) -> Pool:
    pool = pool_of(*(node(f"n{i}") for i in range(count)))
    for number in range(count):
        pool.claim(CardId(f"n{number}", 0), borrowed(number, since=number + 1))
    return pool


@pytest.mark.parametrize("wanted", [1, 2, 7, 20])
def test_of_many_that_could_end_the_youngest_do(wanted: int) -> None:
    """Not all sets of 20 leases are tried."""
    pool, asked = many(20), gang(wanted, share=100)
    rules = Rules(beyond=lambda tenant, gone: tenant == "b", owed=True)
    if wanted == 1:
        asked = [request(share_ppm=PPM, cards=2)]
    found = plan(pool, asked, Paths(), rules, Taken(bounds_of(asked)))
    ends = {give.lease for row in found for way in row for give in way.gives if give.ends}
    count = max(wanted, 2)
    assert ends == {f"old-{number}" for number in range(20 - count, 20)}


def test_a_world_with_full_cards_takes_a_gang() -> None:
    world = World()
    for number in range(3):
        world.add(f"n{number}", 1)
    for number in range(3):
        world.ask(request(100 + number, share_ppm=PPM, memory_bytes=GIB, least_ppm=10 * PERCENT))
    world.settle()
    for one in gang(3, share=60):
        world.ask(one, gang="g", size=3)
    world.settle()
    assert {f"run-{i}" for i in (0, 1, 2, 100, 101, 102)} == set(world.told)
    for i in range(3):
        world.end(f"run-{i}")
    world.settle()
    assert {
        h.share_ppm for d in world.daemons.values() for c in d.node.cards for h in d.on(c.id)
    } == {PPM}
