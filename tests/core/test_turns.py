"""Turns: a tenant's many requests hold up another's request by two at most."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

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
