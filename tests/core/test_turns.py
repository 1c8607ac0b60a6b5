"""Turns: a tenant's many requests hold up another's request by two at most.

The same of the queues in which requests of several tenants wait.
"""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_common.turns import TurnPlaces, TurnQueue
from rgpu_server.core.turns import Turns


def test_one_request_comes_after_one_of_a_hundred() -> None:
    turns = Turns()
    many = [turns.mark("alice") for _ in range(100)]
    turns.serve(many[0])
    one = turns.mark("bob")
    assert sorted([*many[1:], one])[:2] == [one, many[1]]


def test_a_tenant_that_was_away_has_no_turns_to_catch_up_on() -> None:
    turns = Turns()
    turns.mark("bob")
    for _ in range(50):
        turns.serve(turns.mark("alice"))
    theirs, mine = turns.mark("alice"), [turns.mark("bob") for _ in range(3)]
    assert mine[0] < theirs < mine[2]


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=60))
def test_a_request_waits_for_two_of_each_other_tenant_at_most(events: list[str]) -> None:
    """A name is a request that comes; "" serves the next one."""
    turns = Turns()
    waiting: list[tuple[int, int, str]] = []
    passed: dict[int, list[str]] = {}
    for number, event in enumerate(events):
        if event:
            waiting.append((turns.mark(event), number, event))
            if sum(tenant == event for _, _, tenant in waiting) == 1:
                passed[number] = []
        elif waiting:
            mark, served, tenant = min(waiting)
            waiting.remove((mark, served, tenant))
            turns.serve(mark)
            passed.pop(served, None)
            for seen in passed.values():
                seen.append(tenant)
    for seen in passed.values():
        assert all(seen.count(tenant) <= 2 for tenant in seen)


@settings(deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", "pop", "discard"]), max_size=60))
def test_what_is_queued_waits_for_one_of_each_other_tenant_at_most(events: list[str]) -> None:
    queue: TurnQueue[tuple[str, int]] = TurnQueue()
    waiting: dict[str, list[tuple[str, int]]] = {"a": [], "b": [], "c": []}
    passed: dict[str, list[str]] = {}
    for number, event in enumerate(events):
        if event in waiting:
            if not waiting[event]:
                passed[event] = []
            waiting[event].append((event, number))
            queue.add((event, number), event)
            queue.add((event, number), event)
        elif event == "pop" and len(queue):
            one = queue.pop()
            assert waiting[one[0]].pop(0) == one
            passed[one[0]] = []
            for tenant in waiting.keys() - {one[0]}:
                passed.setdefault(tenant, []).append(one[0])
                if waiting[tenant]:
                    assert passed[tenant].count(one[0]) <= 1
        elif event == "discard" and waiting["c"]:
            queue.discard(waiting["c"].pop())
        assert len(queue) == sum(map(len, waiting.values()))


def test_a_place_is_passed_on_in_turn() -> None:
    order: list[str] = []
    some = [*["team"] * 20, "bob", "carol"]

    async def work(places: TurnPlaces, tenant: str) -> None:
        async with places.place(tenant):
            order.append(tenant)
            await asyncio.sleep(0)

    async def all_come() -> None:
        places = TurnPlaces(2)
        works = (work(places, tenant) for tenant in some)
        await asyncio.wait_for(asyncio.gather(*works), 30.0)

    asyncio.run(all_come())
    assert sorted(order) == sorted(some)
    assert set(order[:6]) == {"team", "bob", "carol"}


def test_a_place_is_not_lost_with_whom_it_was_for() -> None:
    """Not even where the turn comes in the step in which it is taken back."""

    async def work(places: TurnPlaces, go: asyncio.Event) -> None:
        async with places.place("team"):
            await go.wait()

    async def taken_back() -> None:
        places, go = TurnPlaces(1), asyncio.Event()
        first, second, third = (asyncio.ensure_future(work(places, go)) for _ in range(3))
        await asyncio.sleep(0)  # all have come
        go.set()
        await asyncio.sleep(0)  # the first one's task goes on
        await first
        # The place has gone to the second, whose task has not gone on.
        second.cancel()
        third.cancel()
        await asyncio.wait((second, third), timeout=30.0)
        assert second.cancelled() or third.cancelled()
        await asyncio.wait_for(work(places, go), 30.0)

    asyncio.run(taken_back())
