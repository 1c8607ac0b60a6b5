"""Totals only grow, whatever ends and begins anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rgpu_server.observe.record import Ring, Sample
from rgpu_server.observe.totals import MAX_ROWS, OTHERS, Amounts, Growing, Totals


def used(launches: int, device_ns: int = 0) -> Amounts:
    return Amounts(launches=launches, device_ns=device_ns)


def test_a_counter_that_begins_anew_goes_on() -> None:
    growing = Growing()
    for counted, total in ((3, 3), (5, 5), (2, 7), (2, 7), (9, 14)):
        growing.observe("x", (counted,))
        assert growing.sums("x") == (total,)


@given(st.lists(st.integers(0, 1000)))
def test_no_sum_ever_falls(counted: list[int]) -> None:
    growing, before = Growing(), 0
    for count in counted:
        growing.observe("x", (count,))
        (now,) = growing.sums("x")
        assert now >= max(before, count)
        before = now


def test_sums_of_absurd_counts_can_be_recorded() -> None:
    totals, most = Totals(), (1 << 63) - 1
    totals.place("lease-1", "alice", 0)
    for counted in (most, 1, most, 1, most):
        totals.observe("lease-1", used(counted))
    total = totals.lease("lease-1").launches
    assert total == totals.tenants["alice", 0].launches == most
    Ring(1000).add(0, [Sample(0, 0, 0, total, 0, 0, 0, 0, 0, 0, 1)])


def test_a_tenant_keeps_what_its_leases_used() -> None:
    totals = Totals()
    totals.place("lease-1", "alice", 0)
    totals.observe("lease-1", used(3))
    totals.end("lease-1", used(5))
    totals.place("lease-2", "alice", 0)
    totals.observe("lease-2", used(1))
    assert totals.tenants == {("alice", 0): used(6)}
    assert totals.lease("lease-1") == Amounts()


def test_a_lease_that_moves_counts_where_it_is() -> None:
    totals = Totals()
    totals.place("lease-1", "alice", 0)
    totals.observe("lease-1", used(3))
    totals.place("lease-1", "alice", 1)
    totals.observe("lease-1", used(4))
    assert totals.tenants == {("alice", 0): used(3), ("alice", 1): used(1)}


def test_a_lease_that_nobody_placed_is_left_out() -> None:
    totals = Totals()
    totals.end("lease-1", used(5))
    assert totals.tenants == {}


def test_after_a_restart_nothing_is_lost_and_nothing_counted_twice() -> None:
    before = Totals()
    before.place("ended", "alice", 0)
    before.end("ended", used(10))
    for lease in ("runs", "gone"):
        before.place(lease, "alice", 0)
        before.observe(lease, used(5))
    after = Totals()
    after.restore(before.save(), {"runs"})
    after.place("runs", "alice", 0)
    after.observe("runs", used(7))
    assert after.tenants == {("alice", 0): used(22)}
    assert after.lease("runs") == used(7)
    # A new lease that happens to have the name of one that is gone begins at nothing.
    after.place("gone", "alice", 0)
    assert after.observe("gone", used(1)) == used(1)


def test_what_makes_no_sense_is_not_restored() -> None:
    good = Totals()
    good.place("x", "alice", 0)
    good.observe("x", used(1))
    for saved in (None, [], {}, {"fields": ["other"]}):
        totals = Totals()
        totals.restore(saved, {"x"})
        assert totals.tenants == {}
    for broken in (
        [["alice", 0]],
        [[1, 0, *used(1)]],
        [["alice", 0, *["x"] * len(used(1))]],
        "rows",
    ):
        totals = Totals()
        totals.restore({**good.save(), "tenants": broken, "leases": broken}, {"x"})
        assert totals.tenants == {}


def test_tenants_are_bounded_and_the_sum_stays() -> None:
    totals = Totals()
    for i in range(MAX_ROWS + 50):
        totals.place(f"lease-{i}", f"tenant-{i}", 0)
        totals.end(f"lease-{i}", used(1))
    assert len(totals.tenants) <= MAX_ROWS + 1
    assert totals.tenants[OTHERS, 0].launches >= 49
    assert sum(amounts.launches for amounts in totals.tenants.values()) == MAX_ROWS + 50
