"""Who leads: decisions of candidates under a clock of the test."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_cluster.kubernetes.election import LEASE_SECONDS, RENEW_SECONDS, Election, Record


def test_a_free_lease_is_taken() -> None:
    for record in (None, Record("", "1")):
        assert Election("a").may_write(record, 0.0)


def test_anothers_lease_is_left_until_nobody_has_renewed_it_for_its_time() -> None:
    mine = Election("a")
    held = Record("b", "1")
    assert not mine.may_write(held, 100.0)
    assert not mine.may_write(held, 100.0 + LEASE_SECONDS - 0.1)
    renewed = Record("b", "2")
    assert not mine.may_write(renewed, 100.0 + LEASE_SECONDS)
    assert mine.may_write(renewed, 100.0 + 2 * LEASE_SECONDS)


def test_the_time_of_the_lease_itself_counts() -> None:
    mine = Election("a")
    mine.may_write(Record("b", "1", 40.0), 0.0)
    assert not mine.may_write(Record("b", "1", 40.0), 39.0)
    assert mine.may_write(Record("b", "1", 40.0), 40.0)


def test_who_cannot_renew_stops_before_another_one_may_begin() -> None:
    mine = Election("a")
    assert not mine.lost(1000.0)
    mine.wrote(0.0)
    assert mine.leads
    assert not mine.lost(RENEW_SECONDS - 0.1)
    assert mine.lost(RENEW_SECONDS)
    assert RENEW_SECONDS < LEASE_SECONDS


class World:
    """A Lease at a server that accepts a write if its writer has seen the latest version."""

    def __init__(self) -> None:
        self.record: Record | None = None
        self.writes = 0

    def write(self, who: str, seen: Record | None) -> bool:
        if seen != self.record:
            return False
        self.writes += 1
        self.record = Record(who, str(self.writes))
        return True


STEP = st.tuples(st.sampled_from("abc"), st.sampled_from(["try", "slow", "none"]))


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=120))
def test_never_two_at_once(steps: list[tuple[str, str]]) -> None:
    """Each step takes two seconds. slow: the answer comes a step later; none: no answer comes."""
    world, now = World(), 0.0
    all_of = {name: Election(name) for name in "abc"}
    seen: dict[str, tuple[Record | None, float]] = {}
    for name, how in steps:
        now += 2.0
        mine = all_of[name]
        if mine.lost(now):
            all_of[name] = mine = Election(name)  # its process ended, and was started again
        record, asked = seen.pop(name, (world.record, now))
        if how == "slow" and name not in seen:
            seen[name] = (world.record, now)
            continue
        if how == "none" or not mine.may_write(record, asked):
            continue
        if world.write(name, record):
            mine.wrote(asked)
        leaders = [one for one, e in all_of.items() if e.leads and not e.lost(now)]
        assert len(leaders) <= 1, (leaders, now)
