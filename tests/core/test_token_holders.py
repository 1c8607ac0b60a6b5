"""Holders that are lost, silent, gone or back, and clocks that jump."""

from __future__ import annotations

import pytest
from core.token_desk import MS, SECOND, Desk, granted

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.params import TokenParams
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share

# Holders that do not return the token


def test_a_holder_that_dies_is_fenced_before_anybody_is_granted() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    assert desk.say(on.Died("a"), 3) == [do.Fence("a", 1)]
    assert desk.wake("a", 4) == []
    assert desk.say(on.Fenced("b", 1), 5) == []
    assert desk.say(on.Fenced("a", 7), 5) == []
    assert desk.say(on.Fenced("a", 1), 60) == [do.Grant("b", 2, 10 * MS)]
    assert desk.debt("a") == pytest.approx(30, abs=1)


def test_a_late_return_of_a_fenced_token_is_audited_and_not_charged() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    desk.say(on.Died("a"), 3)
    assert desk.back("a", 1, 3, 4) == [do.Audit("a", 1, 3 * MS)]
    desk.say(on.Fenced("a", 1, 10 * MS), 20)
    before = desk.debt("a")
    assert desk.back("a", 1, 20, 20) == [do.Audit("a", 1, 20 * MS)]
    assert desk.debt("a") == before
    assert desk.tokens.charged_ns == 20 * MS


def test_a_silent_holder_is_asked_for_and_then_fenced() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    assert desk.tokens.next_wake() == 1005 * MS
    assert desk.say(on.TimePassed(), 1005) == [do.CheckAlive("a", 1)]
    assert desk.say(on.Lost("a", 1), 1006) == [do.Fence("a", 1)]
    assert granted(desk.say(on.Fenced("a", 1), 1010)) == "b"


def test_a_supervisor_that_does_not_answer_counts_as_lost() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    desk.say(on.TimePassed(), 1005)
    assert desk.say(on.TimePassed(), 2005) == [do.Fence("a", 1)]


def test_a_holder_whose_long_kernel_runs_is_left_alone_up_to_the_drain_limit() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    asked = 0
    while True:
        due = desk.tokens.next_wake()
        assert due is not None
        actions = desk.say(on.TimePassed(), due / MS)
        if actions == [do.Fence("a", 1)]:
            break
        assert actions == [do.CheckAlive("a", 1)]
        asked += 1
        assert desk.say(on.Alive("a", 1), due / MS) == [do.Recall("a", 1, 5 * MS)]
    assert asked == 59
    assert desk.now >= 60 * SECOND


def test_a_paused_holder_is_not_fenced_while_nobody_waits() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.say(on.Paused("a"), 1)
    fences = []
    while desk.now < 200 * SECOND:
        due = desk.tokens.next_wake()
        assert due is not None
        for action in desk.say(on.TimePassed(), due / MS):
            if isinstance(action, do.CheckAlive):
                desk.say(on.Alive("a", 1), due / MS)
            elif isinstance(action, do.Fence):
                fences.append(desk.now)
        if desk.now >= 100 * SECOND:
            desk.wake("b", desk.now / MS)
        if fences:
            break
    # 60 s from when the other one began to wait.
    assert fences
    assert 160 * SECOND <= fences[0] <= 163 * SECOND


def test_patience_follows_the_holders_own_kernels() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.back("a", 1, 700, 700, kernel=700)
    assert desk.wake("b", 720) == [do.Recall("a", 1, 720 * MS)]
    assert desk.tokens.next_wake() == (720 + 4 * 700) * MS


def test_a_holder_that_overstays_a_slice_is_recalled_first() -> None:
    desk = Desk(a=Share(500_000, 900_000), b=0.0)
    desk.wake("b", 0)
    desk.wake("a", 0)
    desk.back("b", 1, 10, 10)
    assert desk.say(on.TimePassed(), 1020) == [do.Recall("a", 2, 1020 * MS)]
    assert desk.say(on.TimePassed(), 2020) == [do.CheckAlive("a", 2)]


def test_a_lease_that_leaves_while_it_holds_is_fenced() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    assert desk.say(on.Left("a"), 5) == [do.Fence("a", 1)]
    assert desk.say(on.Fenced("a", 1), 9) == [do.Grant("b", 2, 10 * MS, until_recall=True)]
    assert list(desk.tokens.leases()) == ["b"]


def test_leaving_and_coming_back_does_not_clear_a_debt() -> None:
    desk = Desk(a=Share(100_000, 500_000), b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.back("a", 1, 250, 250)
    debt = desk.debt("a")
    assert debt > 200
    desk.say(on.Left("a"), 250)
    desk.say(on.Joined("a", Share(100_000, 500_000)), 251)
    assert desk.debt("a") == pytest.approx(debt, abs=0.2)
    desk.wake("a", 252)
    usage = desk.tokens.usage("a")
    assert usage is not None
    assert usage.state == "throttled"


def test_debts_of_the_gone_are_bounded() -> None:
    desk = Desk(TokenParams(remembered_debts=8), b=0.5)
    for n in range(100):
        lease = f"gone-{n}"
        desk.say(on.Joined(lease, Share(10_000)))
        desk.wake(lease, n * 100)
        desk.back(lease, n + 1, 90, n * 100 + 90)
        desk.say(on.Left(lease))
        desk.say(on.Fenced(lease, n + 1))
    assert len(desk.tokens._book.payers) <= 8 + 1


def test_coming_back_while_being_fenced_keeps_the_debt() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    desk.say(on.Left("a"), 5)
    assert desk.say(on.Joined("a", Share(250_000)), 6) == []
    assert desk.wake("a", 7) == []
    assert granted(desk.say(on.Fenced("a", 1), 105)) == "b"
    assert desk.debt("a") == pytest.approx(75, rel=0.05)


def test_generations_go_on_where_an_earlier_daemon_ended() -> None:
    tokens = TokenScheduler(first_gen=41)
    tokens.handle(on.Joined("a", Share(PPM)), 0)
    assert tokens.handle(on.Returned("a", 41, MS, MS, False), 0) == [do.Audit("a", 41, MS)]
    assert tokens.handle(on.Woke("a"), 0) == [do.Grant("a", 42, 10 * MS, until_recall=True)]


def test_coming_back_while_being_fenced_forgets_what_the_old_one_wanted() -> None:
    desk = Desk(a=0.5)
    desk.wake("a", 0)
    desk.say(on.Died("a"), 1)
    desk.wake("a", 2)
    desk.say(on.Left("a"), 3)
    desk.say(on.Joined("a", Share(100_000)), 4)
    assert desk.say(on.Fenced("a", 1), 5) == []
    assert desk.wake("a", 6) == [do.Grant("a", 2, 10 * MS, until_recall=True)]


# The clock


def test_a_clock_that_goes_back_stands_still() -> None:
    desk = Desk(a=Share(500_000, 500_000), b=0.5)
    desk.wake("a", 3_600_000)
    desk.wake("b", 3_600_001)
    assert desk.back("a", 1, 5, 1000) == [do.Grant("b", 2, 10 * MS)]
    due = desk.tokens.next_wake()
    assert due is not None
    assert due <= 1000 * MS + 2 * SECOND
    assert desk.back("b", 2, 10, 1010) == [do.Grant("a", 3, 10 * MS)]
    # The lease slept for an hour, is owed time for a tenth of a second, and had 10 ms.
    assert desk.debt("b") == pytest.approx(10 - 50, abs=8)


def test_a_clock_that_jumps_ahead_gives_no_credit() -> None:
    desk = Desk(a=Share(300_000, 300_000), b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 0)
    hour = 3_600_000
    assert desk.back("a", 1, 50, hour) == [do.Grant("b", 2, 10 * MS)]
    # A jump of the clock fills the bucket at most to its size.
    desk.back("b", 2, 10, hour + 10, empty=True)
    total = 0.0
    now = hour + 10.0
    gen = 3
    while now < hour + 1010:
        total += 10
        now += 10
        actions = desk.back("a", gen, 10, now)
        if not actions:
            due = desk.tokens.next_wake()
            assert due is not None
            now = due / MS
            desk.say(on.TimePassed(), now)
            gen += 1
    assert total <= 0.3 * 1000 + 25 + 10


def test_a_jump_does_not_make_a_dead_holder_owe_an_hour() -> None:
    desk = Desk(a=0.5, b=0.5)
    desk.wake("a", 0)
    desk.wake("b", 1)
    desk.say(on.Died("a"), 3)
    desk.say(on.Fenced("a", 1), 3_600_000)
    assert desk.tokens.device_ns <= 3_600_000 * MS
    assert desk.debt("b") >= -0.5 * 100 - 0.5 * 3_600_000
