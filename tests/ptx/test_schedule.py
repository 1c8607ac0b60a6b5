"""Which request of a tenant gets a compiler process, and when one has had enough: no process, no
clock."""

from __future__ import annotations

from rgpu_emu.compile_schedule import (
    MAX_SERVED,
    Bounds,
    Budget,
    Debts,
    Decision,
    Give,
    Refuse,
    Schedule,
    Slow,
    Start,
)

A, B, C = b"a", b"b", b"c"


def schedule(**bounds: float) -> Schedule:
    return Schedule(Bounds(**bounds), 0.0)  # type: ignore[arg-type]


def asked(made: Schedule, *requests: tuple[int, bytes], now: float = 0.0) -> list[Decision]:
    for number, key in requests:
        made.ask(number, key, now)
    return made.decide(now)


def test_a_flood_of_requests_gets_two_processes() -> None:
    made = schedule()
    decisions = asked(made, *((n, bytes([n])) for n in range(1, 21)))
    assert decisions == [Start(1, 1, 0, slow=False), Start(2, 2, 0, slow=False)]
    assert made.decide(1.0) == []
    made.answered(1, 2.0)
    assert made.decide(2.0) == [Start(3, 3, 1, slow=False)], (
        "in order, in the place of the idle one"
    )
    assert len(made.busy()) == 2


def test_a_module_stays_with_its_process() -> None:
    made = schedule()
    asked(made, (1, A))
    made.answered(1, 1.0)
    assert asked(made, (2, A), (3, B), now=2.0) == [Give(2, 1), Start(3, 2, 0, slow=False)]
    made.answered(1, 3.0)
    made.answered(2, 4.0)
    assert asked(made, (4, C), now=5.0) == [Start(4, 3, 1, slow=False)], "the one used longest ago"
    assert asked(made, (5, B), now=5.0) == [Give(5, 2)]


def test_linked_inputs_are_nobody_elses() -> None:
    made = schedule()
    asked(made, (1, b""))
    made.answered(1, 1.0)
    assert asked(made, (2, b""), now=2.0) == [Start(2, 2, 0, slow=False)]


def test_processor_time_is_counted_and_not_the_clock() -> None:
    made = schedule(request_seconds=60, wall_seconds=600)
    asked(made, (1, A))
    made.measured(1, 8.0, 400.0)
    assert made.decide(400.0) == []
    made.measured(1, 60.0, 500.0)
    (refused,) = made.decide(500.0)
    assert refused == Refuse(
        1, 1, "compiling took more than 60 s of processor time: make the kernel smaller"
    )
    assert made.wake(500.0) is None


def test_each_request_of_a_process_has_its_own_time() -> None:
    made = schedule()
    asked(made, (1, A))
    made.measured(1, 50.0, 50.0)
    made.answered(1, 50.0)
    assert asked(made, (2, A), now=51.0) == [Give(2, 1)]
    made.measured(1, 100.0, 110.0)
    assert made.decide(110.0) == []
    made.measured(1, 110.0, 120.0)
    assert [type(d) for d in made.decide(120.0)] == [Refuse]


def test_a_starved_request_ends_by_the_clock_with_its_own_sentence() -> None:
    made = schedule(wall_seconds=600)
    asked(made, (1, A), (2, B), (3, C))
    made.measured(1, 2.0, 600.0)
    one, two, three = made.decide(600.0)
    assert isinstance(one, Refuse)
    assert one.sentence == (
        "after 600 s the compiler had been given 2.0 s of processor time and was not done: the "
        "server is overloaded or its compiler was stopped; try again later"
    )
    assert isinstance(two, Refuse)
    assert isinstance(three, Refuse)
    assert (three.request, three.job) == (3, 0)
    assert "of which 2 run at a time" in three.sentence


def test_it_wakes_when_a_bound_can_first_be_reached() -> None:
    made = schedule(request_seconds=60, wall_seconds=600, burst_seconds=300)
    assert made.wake(0.0) is None
    asked(made, (1, A))
    assert made.wake(0.0) == 60.0
    made.measured(1, 59.0, 200.0)
    assert made.wake(200.0) == 1.0
    made.measured(1, 59.0, 599.5)
    assert made.wake(599.5) == 0.5


def test_an_endless_flood_runs_behind_everybody_and_one_at_a_time() -> None:
    made = schedule(burst_seconds=100, refill=0.25, request_seconds=60)
    asked(made, (1, A), (2, B), (3, C))
    made.measured(1, 40.0, 40.0)
    made.measured(2, 40.0, 40.0)
    made.answered(1, 40.0)
    assert made.decide(40.0) == [Start(3, 3, 1, slow=False)], "20 s are left"
    made.measured(2, 59.0, 60.0)
    made.measured(3, 9.0, 60.0)
    assert made.decide(60.0) == [Slow(2), Slow(3)]
    made.answered(3, 61.0)
    assert asked(made, (4, A), now=61.0) == [], "one of them is at work"
    made.answered(2, 62.0)
    assert made.decide(62.0) == [Start(4, 4, 3, slow=True)]


def test_who_pauses_is_quick_again_in_a_new_process() -> None:
    made = schedule(burst_seconds=100, refill=0.25)
    made.owe(110.0, 0.0)
    assert asked(made, (1, A)) == [Start(1, 1, 0, slow=True)]
    made.answered(1, 1.0)
    assert asked(made, (2, A), now=2.0) == [Give(2, 1)]
    made.answered(1, 3.0)
    assert asked(made, (3, A), now=60.0) == [Start(3, 2, 1, slow=False)]


def test_debt_is_paid_in_good_time() -> None:
    budget = Budget(300.0, 0.25, 0.0)
    budget.spend(10_000.0, 10.0)
    assert budget.level(10.0) == -60.0
    assert budget.level(10.0 + 241.0) > 0
    assert budget.level(1e6) == 300.0


def test_a_new_compiler_begins_with_the_debt_of_the_old_one() -> None:
    debts = Debts(refill=0.25, most=2)
    debts.keep("a", 100.0, 40.0, 1000.0)
    debts.keep("b", 10.0, 40.0, 1000.0)
    assert debts.take("b", 1000.0) == 0.0
    assert debts.take("a", 1100.0) == 65.0
    assert debts.take("a", 1100.0) == 0.0, "it is carried by one"
    for tenant in "abc":
        debts.keep(tenant, 10.0, 0.0, 2000.0)
    assert [debts.take(tenant, 2000.0) for tenant in "abc"] == [0.0, 10.0, 10.0]


def test_a_process_that_dies_is_replaced_once_if_it_was_used() -> None:
    made = schedule()
    asked(made, (1, A))
    assert not made.died(1)
    asked(made, (2, A), now=1.0)
    made.answered(2, 1.0)
    asked(made, (3, A), now=2.0)
    assert made.died(2)
    assert made.decide(3.0) == [Start(3, 3, 0, slow=False)]
    assert not made.died(3)
    assert made.decide(4.0) == []


def test_a_process_is_used_so_often_and_so_long() -> None:
    made = schedule(request_seconds=60)
    asked(made, (1, A))
    for n in range(MAX_SERVED - 1):
        made.answered(1, float(n))
        assert asked(made, (n + 2, A), now=float(n)) == [Give(n + 2, 1)]
    made.answered(1, 999.0)
    assert asked(made, (999, A), now=999.0) == [Start(999, 2, 1, slow=False)]
    made.measured(2, made._bounds.job_seconds - 100.0, 1500.0)
    made.answered(2, 1500.0)
    assert [type(d) for d in asked(made, (1000, A), now=1500.0)] == [Start]


def test_who_goes_away_frees_the_process() -> None:
    made = schedule()
    asked(made, (1, A), (2, B), (3, C))
    assert made.withdraw(3) == 0
    assert made.withdraw(1) == 1
    assert asked(made, (4, C)) == [Start(4, 3, 0, slow=False)]
