"""The reports of the scheduler, and the length of slices."""

from __future__ import annotations

import pytest
from core.token_desk import MS, SECOND, Desk, granted

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.params import TokenParams, base_slice
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share

# Reports


def test_usage_counts_device_waiting_and_throttled_time() -> None:
    desk = Desk(a=Share(200_000, 200_000), b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.say(on.Returned("a", 1, 50 * MS, 40 * MS, False), 50)
    desk.say(on.Returned("b", 2, 10 * MS, 10 * MS, True), 60)
    a, b = desk.tokens.usage("a"), desk.tokens.usage("b")
    assert a is not None
    assert b is not None
    assert (a.device_ns, a.held_ns, a.waiting_ns, a.throttled_ns) == (
        40 * MS,
        50 * MS,
        0,
        10 * MS,
    )
    assert (b.device_ns, b.waiting_ns, b.state, b.grants) == (10 * MS, 50 * MS, "off", 1)
    assert (a.share_1s_ppm, a.share_10s_ppm) == (40_000, 4_000)
    assert desk.tokens.usage("c") is None


def test_a_long_run_reports_on_the_way() -> None:
    desk = Desk(a=0.5)
    desk.wake("a", 0)
    for n in range(1, 11):
        assert desk.say(on.Progressed("a", 1, 100 * MS, 100 * MS), n * 100) == []
    usage = desk.tokens.usage("a")
    assert usage is not None
    assert usage.share_1s_ppm == PPM
    assert usage.owed_ns == 0
    assert desk.tokens.charged_ns == SECOND


def test_reports_that_cannot_be_true_are_cut() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.say(on.Returned("a", 1, 3600 * SECOND, 7200 * SECOND, True), 10)
    assert desk.tokens.charged_ns == 10 * MS
    desk.say(on.Woke("a"), 10)
    desk.say(on.Returned("b", 2, -5, -5, False), 20)
    assert desk.say(on.Returned("a", 3, -5, -5, True), 30) != []
    usage = desk.tokens.usage("a")
    assert usage is not None
    assert usage.device_ns == 10 * MS
    # A run until recall counts whatever its report says, a slice as it says.
    assert desk.tokens.charged_ns == 20 * MS


def test_a_timer_that_comes_early_is_armed_again() -> None:
    tokens = TokenScheduler()
    tokens.handle(on.Joined("a", Share(100_000, 500_000)), 0)
    tokens.handle(on.Woke("a"), 0)
    back = on.Returned("a", 1, 60 * MS, 60 * MS, False)
    assert tokens.handle(back, 60 * MS) == [do.TimerAt(78 * MS)]
    assert tokens.handle(on.Joined("b", Share()), 61 * MS) == []
    assert tokens.handle(on.TimePassed(), 78 * MS - 1) == [do.TimerAt(78 * MS)]
    assert tokens.handle(on.TimePassed(), 78 * MS) == [do.Grant("a", 2, 8 * MS)]
    assert tokens.next_wake() is None


# Shares and slices


@pytest.mark.parametrize(
    "numbers", [(-1, PPM), (500_000, 400_000), (0, 0), (0, PPM + 1), (0, PPM, 0)]
)
def test_shares_without_sense_are_refused(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"ppm|weight"):
        Share(*numbers)


def test_the_slice_follows_the_hand_over() -> None:
    params = TokenParams()
    assert base_slice(params, 100_000) == 10 * MS
    assert base_slice(params, 1_000) == 5 * MS
    assert base_slice(params, 2 * MS) == 25 * MS


def test_slices_of_saturated_work_grow_with_a_slow_hand_over() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.tokens.expect_hand_overs(200_000)
    desk.wake("a", 0)
    desk.wake("b", 0)
    slices, at = [], 0
    lease, gen = "a", 1
    for _ in range(40):
        at += 10
        back = desk.back(lease, gen, 10, at)
        (given,) = (a for a in back if isinstance(a, do.Grant | do.Extend))
        lease, gen = given.lease, given.gen
        slices.append(given.slice_ns)
    assert slices[0] == 10 * MS
    assert slices[-1] > 19 * MS


def test_who_would_go_on_anyway_goes_on_without_giving_the_token_back() -> None:
    desk = Desk(a=0.9, b=0.1)
    desk.wake("a", 0)
    desk.wake("b", 0)  # waits: a run until recall becomes a slice
    desk.back("a", 1, 5, 5)
    granted_b = desk.back("b", 2, 10, 15)
    assert granted(granted_b) == "a"
    desk.say(on.Progressed("a", 3, 6 * MS, 6 * MS), 21)
    assert desk.say(on.NearEnd("a", 3, may_lengthen=True), 21) == [do.Lengthen("a", 3, 10 * MS)]
    # All of it is charged, in two parts.
    before = desk.tokens.charged_ns
    desk.back("a", 3, 14, 35)
    assert desk.tokens.charged_ns == before + 14 * MS


def test_a_slice_is_not_lengthened_early_or_against_somebody_who_is_next() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    assert granted(desk.back("a", 1, 5, 5)) == "b"
    assert desk.say(on.NearEnd("b", 2, may_lengthen=True), 13) == [do.Prepare("a")]
    desk = Desk(TokenParams(slice_base_ns=25 * MS), a=0.9, b=0.1)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.back("a", 1, 5, 5)
    assert granted(desk.back("b", 2, 25, 30)) == "a"
    assert desk.say(on.NearEnd("a", 3, may_lengthen=True), 31) == []
    assert desk.say(on.NearEnd("a", 3), 52) == []
