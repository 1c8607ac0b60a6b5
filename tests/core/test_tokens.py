"""The token of one device: each test states the events that go in and the actions that come out."""

from __future__ import annotations

import pytest
from core.token_desk import MS, Desk, granted

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.share import Share

# One lease


def test_a_lone_lease_is_granted_until_recall() -> None:
    desk = Desk(a=0.3)
    assert desk.wake("a", 0) == [do.Grant("a", 1, 10 * MS, until_recall=True)]
    assert desk.tokens.next_wake() is None


def test_a_lone_capped_lease_gets_slices_and_waits_for_its_bucket() -> None:
    desk = Desk(a=Share(100_000, 500_000))
    assert desk.wake("a", 0) == [do.Grant("a", 1, 10 * MS)]
    assert desk.back("a", 1, 60, 60) == []
    # 25 ms of credit less 60 plus what 60 ms earn is -5; 4 ms of credit take 18 ms, and last for 8.
    assert desk.tokens.next_wake() == 78 * MS
    assert desk.say(on.TimePassed(), 78) == [do.Grant("a", 2, 8 * MS)]
    assert desk.back("a", 2, 8, 86) == []
    assert desk.tokens.next_wake() == 94 * MS


def test_a_capped_lease_waits_for_longer_turns_where_hand_overs_are_dear() -> None:
    desk = Desk(a=Share(100_000, 500_000))
    desk.tokens.expect_hand_overs(MS // 4)
    desk.wake("a", 0)
    desk.back("a", 1, 60, 60)
    # A slice may be 25 ms, towards which it goes from 10: 10 ms of credit instead of 4, so 12 ms
    # later.
    assert desk.tokens.next_wake() == 90 * MS
    assert desk.say(on.TimePassed(), 90) == [do.Grant("a", 2, 17_500_000)]


def test_a_lease_that_goes_on_is_extended_under_its_generation() -> None:
    desk = Desk(a=Share(100_000, 900_000))
    desk.wake("a", 0)
    assert desk.back("a", 1, 10, 10) == [do.Extend("a", 1, 10 * MS)]
    assert desk.back("a", 1, 10, 20, empty=True) == []
    # The burst took 20 ms: the slice moves half the way there.
    assert desk.wake("a", 30) == [do.Grant("a", 2, 15 * MS)]


def test_waking_twice_and_unknown_leases_are_harmless() -> None:
    desk = Desk(a=0.3)
    desk.wake("a", 0)
    assert desk.wake("a", 1) == []
    for event in (
        on.Woke("b"),
        on.Slept("b"),
        on.Left("b"),
        on.Died("b"),
        on.Paused("b"),
        on.Resumed("b"),
        on.Resized("b", Share(1)),
        on.NearEnd("b", 1),
        on.Progressed("b", 1, 5, 5),
        on.Alive("b", 1),
        on.Lost("b", 1),
        on.Fenced("b", 1),
        on.TimePassed(),
    ):
        assert desk.say(event, 2) == []


# Two leases


def test_who_is_furthest_behind_its_request_goes_first() -> None:
    desk = Desk(a=0.3, b=0.7)
    desk.wake("a", 0)
    assert desk.wake("b", 2) == [do.Recall("a", 1, 5 * MS)]
    assert desk.back("a", 1, 5, 5) == [do.Grant("b", 2, 10 * MS)]
    assert desk.back("b", 2, 10, 15) == [do.Grant("a", 3, 10 * MS)]
    assert desk.back("a", 3, 10, 25) == [do.Grant("b", 4, 10 * MS)]
    assert desk.back("b", 4, 10, 35) == [do.Extend("b", 4, 10 * MS)]


def test_the_next_lease_is_told_to_prepare() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    assert desk.say(on.NearEnd("a", 1), 4) == [do.Prepare("b")]
    assert desk.say(on.NearEnd("a", 7), 4) == []
    assert desk.say(on.NearEnd("b", 1), 4) == []


def test_nobody_is_prepared_when_the_holder_will_go_on() -> None:
    desk = Desk(a=0.1, b=0.9)
    desk.wake("b", 0)
    desk.wake("a", 0)
    desk.back("b", 1, 5, 5)
    assert desk.back("a", 2, 10, 15) == [do.Grant("b", 3, 10 * MS)]
    assert desk.say(on.NearEnd("b", 3), 20) == []


def test_least_hold_counts_from_the_grant_not_from_an_extension() -> None:
    desk = Desk(a=Share(500_000, 900_000), b=0.5)
    desk.wake("a", 0)
    desk.back("a", 1, 10, 10)
    assert desk.wake("b", 12) == [do.Recall("a", 1, 12 * MS)]


def test_a_waker_in_debt_does_not_cut() -> None:
    desk = Desk(a=0.1, b=0.5, c=0.4)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.back("a", 1, 50, 50, empty=True)
    desk.wake("c", 51)
    assert desk.debt("a") == pytest.approx(45, abs=0.2)
    assert desk.wake("a", 53) == []


def test_a_waker_without_a_claim_still_ends_a_run_until_recall() -> None:
    desk = Desk(a=0.1, b=0.5)
    desk.wake("b", 0)
    desk.wake("a", 0)
    desk.back("b", 1, 5, 5, empty=True)
    desk.wake("b", 6)
    back = desk.back("a", 2, 200, 205, empty=True)
    assert back == [do.Grant("b", 3, 7_500_000, until_recall=True)]
    # a has a debt: it is not owed, and waits for one slice.
    assert desk.wake("a", 207) == [do.Recall("b", 3, 212_500_000)]


def test_ties_go_to_the_least_recently_served() -> None:
    desk = Desk(**{f"t{n}": 0.125 for n in range(8)})
    for n in range(8):
        desk.wake(f"t{n}", 0)
    order = ["t0"]
    for turn in range(15):
        lease = granted(desk.back(order[-1], turn + 1, 8, 8 * (turn + 1)))
        order.append(lease)
    assert sorted(order[:8]) == sorted(order[8:]) == [f"t{n}" for n in range(8)]


# Admission, resize, pause


def test_a_join_that_does_not_fit_is_refused_with_what_would() -> None:
    desk = Desk(a=0.7, b=0.25)
    refused = do.Refused("c", 100_000, over_ppm=50_000, fits_ppm=50_000)
    assert desk.say(on.Joined("c", Share(100_000))) == [refused]
    assert desk.wake("c", 0) == []
    assert desk.say(on.Joined("c", Share(50_000))) == []


def test_a_resize_that_does_not_fit_changes_nothing() -> None:
    desk = Desk(a=0.7, b=0.3)
    refused = do.Refused("b", 400_000, over_ppm=100_000, fits_ppm=300_000)
    assert desk.say(on.Resized("b", Share(400_000))) == [refused]
    usage = desk.tokens.usage("b")
    assert usage is not None
    assert usage.request_ppm == 300_000


def test_a_resize_keeps_a_debt_in_device_time() -> None:
    desk = Desk(a=0.1, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.back("a", 1, 250, 250)
    before = desk.debt("a")
    assert before == pytest.approx(225, abs=1)
    for part in (400_000, 20_000, 0, 100_000):
        desk.say(on.Resized("a", Share(part)))
        assert desk.debt("a") == pytest.approx(before, rel=1e-3)


def test_a_cap_put_on_a_run_until_recall_recalls_it() -> None:
    desk = Desk(a=0.2)
    desk.wake("a", 0)
    assert desk.say(on.Resized("a", Share(200_000, 200_000)), 50) == [do.Recall("a", 1, 50 * MS)]
    # The bucket holds 25 ms, and the 50 ms before the cap do not count.
    assert desk.back("a", 1, 90, 90) == []
    assert desk.tokens.next_wake() == round((90 + (4 + 15 - 8) / 0.2) * MS)


def test_a_cap_that_is_lifted_ends_the_run_until_recall_of_another() -> None:
    desk = Desk(a=Share(100_000, 100_000), b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    assert desk.back("a", 1, 60, 60) == [do.Grant("b", 2, 10 * MS, until_recall=True)]
    assert desk.say(on.Resized("a", Share(100_000)), 70) == [do.Recall("b", 2, 70 * MS)]
    assert granted(desk.back("b", 2, 10, 70, empty=True)) == "a"


def test_a_paused_lease_is_recalled_and_not_granted_until_resumed() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    assert desk.say(on.Paused("a"), 1) == [do.Recall("a", 1, 1 * MS)]
    assert desk.back("a", 1, 1, 1) == []
    assert desk.wake("b", 2) == [do.Grant("b", 2, 10 * MS, until_recall=True)]
    assert desk.back("b", 2, 1, 3, empty=True) == []
    assert desk.say(on.Resumed("a"), 4) == [do.Grant("a", 3, 10 * MS, until_recall=True)]


def test_a_pause_earns_no_more_credit_than_a_sleep() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.say(on.Paused("a"), 0)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.say(on.Resumed("a"), 5000)
    assert desk.debt("a") >= -0.5 * (5000 + 100)
    desk.back("b", 1, 5000, 5000)
    assert desk.debt("a") == pytest.approx(-50)
