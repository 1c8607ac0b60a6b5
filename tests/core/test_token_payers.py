"""The debt of all leases of one payer together, under any order of events."""

from __future__ import annotations

import pytest
from core.token_desk import SECOND, Desk, granted
from core.token_machine import LEASES, MANY, MS, Tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant

from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.debt import Payer
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share
from rgpu_server.core.tokens.units import PPB, State, Unit

ALONE = LEASES[0]


def due(tokens: TokenScheduler, payer: Payer) -> list[Unit]:
    return [unit for unit in tokens._book if unit.payer is payer and unit.due]


def device_now(tokens: TokenScheduler) -> int:
    """The device clock, with the time that the holder has not reported yet."""
    return tokens._token.device_now(tokens._clocks.now)


def balance(tokens: TokenScheduler, payer: Payer) -> int:
    """Device time in ns that the payer's waiting leases are owed, less its debt."""
    payer.settle()
    return (payer.due_rate * device_now(tokens) - payer.due_sum - payer.debt) // PPB


class Families(Tokens):
    """One lease pays for itself; all other leases have one common payer."""

    def payer(self, lease: str) -> str:
        return "alone" if lease == ALONE else "many"

    @invariant()
    def sums_are_those_of_the_due_leases(self) -> None:
        for payer in self.tokens._book.payers:
            units = due(self.tokens, payer)
            assert payer.due_rate == sum(unit.rate_ppb for unit in units)
            assert payer.due_sum == sum(unit.rate_ppb * unit.tag for unit in units)
            for unit in units:
                assert unit.tag <= device_now(self.tokens)
                assert unit.state in (State.READY, State.HOLDING)
            if payer.leases:
                here = [unit for unit in self.tokens._book if unit.payer is payer]
                assert payer.rate_ppb == sum(unit.rate_ppb for unit in here)
                ready = [unit for unit in here if unit.state is State.READY]
                assert payer.waiting.count == len(ready)

    @invariant()
    def a_debt_is_at_most_one_hold(self) -> None:
        """In any window a payer gets from its requests at most r T, what it was owed, and one hold.
        The number of its leases, and the order in which they join and leave, make no difference.
        """
        for payer in self.tokens._book.payers:
            assert balance(self.tokens, payer) >= -self.longest - MS

    @invariant()
    def every_runnable_lease_is_served(self) -> None:
        mirror = self.mirrors.get(ALONE)
        if mirror is not None:
            waited = self.tokens.device_ns - mirror.served_from
            assert waited <= mirror.debt + self.slack()

    @invariant()
    def requests_are_met(self) -> None:
        """The request of the single lease is met whatever number of leases the other payer has."""
        if ALONE in self.mirrors:
            usage = self.usage(ALONE)
            if usage.state in ("ready", "holding"):
                assert usage.owed_ns <= self.slack()

    def slack(self) -> int:
        return super().slack() - (len(LEASES) - 2) * self.longest


Families.TestCase.settings = MANY
TestFamilies = Families.TestCase


class Storm:
    """A tenant with 90 % that always has work, beside another tenant that opens, closes and resizes
    leases and holds the device for as long as it likes whenever one of them gets it.
    """

    def __init__(self) -> None:
        self.tokens = TokenScheduler()
        self.now = self.longest = self.opened = 0
        self.victim_ns = 0
        self.open: list[str] = []
        self.holder: do.Grant | do.Extend | None = None
        self.say(on.Joined("victim", Share(900_000), "victim"))
        self.say(on.Woke("victim"))

    def say(self, event: on.Event) -> None:
        for action in self.tokens.handle(event, self.now):
            if isinstance(action, do.Grant | do.Extend):
                self.holder = action
            elif isinstance(action, do.Fence):
                self.holder = None
                self.say(on.Fenced(action.lease, action.gen))

    def hold(self, span: int, empty: bool) -> None:
        """Lets the holder run for this time and the victim for 10 ms."""
        holder = self.holder
        assert holder is not None
        if holder.lease == "victim":
            span, empty = 10 * MS, False
            self.victim_ns += span
        else:
            self.longest = max(self.longest, span)
        self.now += span
        self.holder = None
        self.say(on.Returned(holder.lease, holder.gen, span, span, empty))

    def attack(self, what: str, ppm: int, span: int, empty: bool) -> None:
        if what == "open":
            lease = f"storm-{self.opened}"
            self.opened += 1
            self.open.append(lease)
            self.say(on.Joined(lease, Share(ppm), "storm"))
            self.say(on.Woke(lease))
        elif what == "close" and self.open:
            self.say(on.Left(self.open.pop(0)))
        elif what == "resize" and self.open:
            self.say(on.Resized(self.open[-1], Share(ppm)))
        elif what == "wake":
            for lease in self.open:
                self.say(on.Woke(lease))
        elif what == "sleep" and self.open:
            self.say(on.Slept(self.open[0]))
        self.hold(span, empty)

    def owed(self) -> int:
        usage = self.tokens.usage("victim")
        assert usage is not None
        return usage.owed_ns


attacks = st.tuples(
    st.sampled_from(["open", "open", "close", "resize", "wake", "sleep", "wait"]),
    st.sampled_from([0, 0, 1, 1, 400, 10_000, 50_000, 100_000]),
    st.sampled_from([1 * MS, 60 * MS, 1 * SECOND, 59 * SECOND]),
    st.booleans(),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(attacks, min_size=1, max_size=80))
def test_no_debt_is_forgotten_by_opening_closing_or_resizing_leases(
    steps: list[tuple[str, int, int, bool]],
) -> None:
    storm = Storm()
    for what, ppm, span, empty in steps:
        storm.attack(what, ppm, span, empty)
        # The victim waits for one kernel, and never for that of a second lease.
        assert storm.owed() <= storm.longest + 200 * MS
    # The victim gets all of its 90 % (the floor of best-effort leases reduces that by 0.5 %),
    # except for work that cannot be cut: one kernel on lent time, and one on the other tenant's
    # request.
    for _ in range(300):
        storm.hold(10 * MS, False)
    due = 0.895 * storm.tokens.device_ns
    assert storm.victim_ns >= due - 2 * storm.longest - 200 * MS


@pytest.mark.parametrize("ppm", [0, 1, 1_000, 50_000])
def test_a_new_lease_of_a_payer_in_debt_waits_as_its_other_leases_do(ppm: int) -> None:
    desk = Desk()
    for lease, share, payer in (
        ("victim", 900_000, "v"),
        ("first", ppm, "a"),
        ("second", ppm, "a"),
    ):
        desk.say(on.Joined(lease, Share(share), payer))
    assert granted(desk.wake("first", 0)) == "first"
    desk.wake("victim", 0)
    desk.wake("second", 0)
    actions = desk.back("first", 1, 1000, 1000)
    desk.say(on.Joined("third", Share(ppm), "a"))
    desk.wake("third", 1000)
    # Until the victim has had 90 % of all time no other lease is served.
    gen, served = 2, 0
    while granted(actions) == "victim":
        served += 10
        actions = desk.back("victim", gen, 10, 1000 + served)
    assert served >= 8_000


def used_by_a_sibling() -> Desk:
    """One payer has the leases 'dirty', which holds the device, and 'clean'; another has 'other'."""
    desk = Desk()
    for lease, share, payer in (
        ("other", 500_000, "o"),
        ("dirty", 10_000, "a"),
        ("clean", 490_000, "a"),
    ):
        desk.say(on.Joined(lease, Share(share), payer))
    desk.wake("dirty", 0)
    return desk


def test_a_debt_of_one_lease_delays_the_others_of_its_payer_and_nobody_for_ever() -> None:
    """The payer of 'clean' owes a second that 'dirty' used. Its requests of 50 % pay that back in
    two seconds.
    """
    desk = used_by_a_sibling()
    desk.wake("other", 0)
    actions = desk.back("dirty", 1, 1000, 1000, empty=True)
    desk.wake("clean", 1000)
    gen, now, first = 2, 1000, 0
    got = {"other": 0, "clean": 0}
    for _ in range(1000):
        grant = next(a for a in actions if isinstance(a, do.Grant | do.Extend))
        gen, now = grant.gen, now + 10
        got[grant.lease] += 10
        first = first or (now if grant.lease == "clean" else 0)
        actions = desk.back(grant.lease, gen, 10, now)
    assert first == pytest.approx(2000, abs=50)
    assert got["clean"] + 1000 == pytest.approx(got["other"], abs=60)


def test_within_a_payer_the_lease_that_is_furthest_behind_goes_first() -> None:
    """The first turn of each sibling is one turn, however long. Then the sibling's own debt delays
    it.
    """
    desk = Desk()
    desk.say(on.Joined("steady", Share(500_000), "a"))
    small = [f"small-{n}" for n in range(20)]
    for lease in small:
        desk.say(on.Joined(lease, Share(1), "a"))
    desk.say(on.Joined("other", Share(499_980), "o"))
    actions = desk.wake("steady", 0)
    for lease in [*small, "other"]:
        desk.wake(lease, 0)
    now, got = 0.0, dict.fromkeys(["steady", "other", *small], 0)
    for _ in range(10_000):
        grant = next(a for a in actions if isinstance(a, do.Grant | do.Extend))
        span = 1000 if grant.lease in small else 10
        now += span
        got[grant.lease] += span
        actions = desk.back(grant.lease, grant.gen, span, now)
    assert all(got[lease] <= 2000 for lease in small)
    assert got["other"] == pytest.approx(now / 2, rel=0.03)
    assert got["steady"] + sum(got[lease] for lease in small) == pytest.approx(now / 2, rel=0.03)


def test_what_is_lent_to_a_payer_in_debt_goes_to_its_lease_that_is_behind() -> None:
    """Without other payers a payer's debt delays none of its leases: no other lease is
    owed time.
    """
    desk = Desk()
    desk.say(on.Joined("long", Share(100_000), "a"))
    desk.say(on.Joined("short", Share(500_000), "a"))
    actions = desk.wake("long", 0)
    desk.wake("short", 0)
    now, got = 0, {"long": 0, "short": 0}
    for _ in range(2_000):
        grant = next(a for a in actions if isinstance(a, do.Grant | do.Extend))
        span = 250 if grant.lease == "long" else 10
        now += span
        got[grant.lease] += span
        actions = desk.back(grant.lease, grant.gen, span, now)
    # Each gets half of the 40 % that no lease requested.
    assert got["short"] / now == pytest.approx(0.7, abs=0.03)


def holder_leaves_before_its_sibling() -> Desk:
    """A desk where the last two leases of a payer have left, and one of them is being fenced."""
    desk = Desk()
    desk.say(on.Joined("a", Share(250_000), "many"))
    desk.say(on.Joined("b", Share(250_000), "many"))
    desk.wake("a", 0)
    assert desk.say(on.Left("a"), 5) == [do.Fence("a", 1)]
    assert desk.say(on.Left("b"), 6) == []
    return desk


def test_a_payer_stays_while_its_last_lease_is_fenced() -> None:
    desk = holder_leaves_before_its_sibling()
    assert desk.say(on.Fenced("a", 1), 7) == []
    assert list(desk.tokens.leases()) == []


def test_a_lease_that_comes_back_while_it_is_fenced_finds_its_payer() -> None:
    desk = holder_leaves_before_its_sibling()
    assert desk.say(on.Joined("a", Share(250_000), "many"), 7) == []
    desk.say(on.Fenced("a", 1), 8)
    assert granted(desk.wake("a", 9)) == "a"


def test_what_a_lease_is_owed_when_it_stops_waiting_pays_its_payers_debt() -> None:
    desk = used_by_a_sibling()
    for lease in ("other", "clean"):
        desk.wake(lease, 0)
    assert granted(desk.back("dirty", 1, 1000, 1000, empty=True)) == "other"
    (payer,) = (p for p in desk.tokens._book.payers if p.leases == 2)
    payer.settle()
    before, debt = balance(desk.tokens, payer), payer.debt
    assert debt
    desk.say(on.Slept("clean"))
    assert payer.debt < debt
    assert balance(desk.tokens, payer) == before
