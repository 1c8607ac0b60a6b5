"""A machine that hands a token scheduler any order of events, and what must hold after each."""

from __future__ import annotations

from core.token_mirror import MS, PARAMS, Held, Mirror, holds, shares
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rgpu_server.core.model import PPM
from rgpu_server.core.tokens import actions as do
from rgpu_server.core.tokens import events as on
from rgpu_server.core.tokens.scheduler import TokenScheduler
from rgpu_server.core.tokens.share import Share
from rgpu_server.core.tokens.usage import Usage

LEASES = [f"lease-{n}" for n in range(5)]
leases = st.sampled_from(LEASES)


class Tokens(RuleBasedStateMachine):
    def payer(self, lease: str) -> str:
        """Returns the payer of a lease; empty if the lease pays for itself."""
        return ""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = TokenScheduler(PARAMS)
        self.now = 0
        self.mirrors: dict[str, Mirror] = {}
        self.held: Held | None = None
        self.fencing: Held | None = None
        self.last_gen = 0
        self.charged = 0
        self.idle = 0
        self.granted = 0
        self.ended = 0
        # The longest hold that ever was, for the bounds.
        self.longest = 0
        self.say(on.TimePassed())

    # Carrying out

    def say(self, event: on.Event) -> list[do.Action]:
        actions = self.tokens.handle(event, self.now)
        for action in actions:
            self.carry_out(action)
        for lease, mirror in self.mirrors.items():
            if self.usage(lease).state != "ready":
                mirror.served_from = self.tokens.device_ns
                mirror.debt = 0
            elif mirror.served_from == self.tokens.device_ns:
                mirror.debt = self.debt(lease)
        return actions

    def served(self, lease: str) -> None:
        """Notes that a hold was charged: if the lease waits now, its wait starts here."""
        mirror = self.mirrors.get(lease)
        if mirror is not None:
            mirror.served_from = self.tokens.device_ns
            mirror.debt = self.debt(lease)

    def carry_out(self, action: do.Action) -> None:
        if isinstance(action, do.Grant | do.Extend):
            self.check_grant(action)
        elif isinstance(action, do.Recall):
            assert self.held is not None
            assert (action.lease, action.gen) == (self.held.lease, self.held.gen)
            self.held.recalled = True
        elif isinstance(action, do.Fence):
            assert self.held is not None
            assert self.fencing is None
            assert (action.lease, action.gen) == (self.held.lease, self.held.gen)
            self.fencing, self.held = self.held, None
            if action.lease in self.mirrors:
                self.mirrors[action.lease].wants = False
        elif isinstance(action, do.Prepare):
            assert self.held is not None
            assert action.lease != self.held.lease

    def check_grant(self, action: do.Grant | do.Extend) -> None:
        assert self.held is None, "one holder at a time"
        assert self.fencing is None, "no grant before the fence is confirmed"
        mirror = self.mirrors[action.lease]
        assert mirror.wants
        assert not mirror.paused
        assert action.slice_ns > 0
        if isinstance(action, do.Grant):
            assert action.gen > self.last_gen, "one holder per generation"
            self.last_gen = action.gen
            self.granted += 1
        else:
            assert action.gen == self.last_gen
        if mirror.share.limit_ppm < PPM:
            mirror.refill(self.now)
            assert mirror.credit > 0, "no grant without credit"
            # At the end of the slice the bucket is empty, including the time earned until then.
            earned = action.slice_ns * mirror.share.limit_ppm
            assert action.slice_ns * PPM <= max(mirror.credit + earned, PPM)
            assert not action.until_recall
        self.held = Held(action.lease, action.gen, self.now, self.now, not action.until_recall)

    def usage(self, lease: str) -> Usage:
        usage = self.tokens.usage(lease)
        assert usage is not None
        return usage

    def pass_time(self, span: int) -> None:
        """Lets time pass, and hands in timers when they are due."""
        end = self.now + span
        while (due := self.tokens.next_wake()) is not None and due <= end:
            self.step(max(due, self.now))
            actions = self.say(on.TimePassed())
            for action in actions:
                if isinstance(action, do.CheckAlive):
                    self.say(on.Alive(action.lease, action.gen))
        self.step(end)

    def step(self, until: int) -> None:
        if self.held is None and self.fencing is None:
            self.idle += until - self.now
        self.now = until

    def end_hold(self, held: Held) -> int:
        """Books a hold that ends now in the test's own tallies."""
        span = self.now - held.since
        self.ended += 1
        self.book(held, span)
        return span

    def book(self, held: Held, span: int) -> None:
        self.charged += span
        self.longest = max(self.longest, self.now - held.began)
        mirror = self.mirrors.get(held.lease)
        if mirror is not None and mirror.share.limit_ppm < PPM:
            mirror.credit -= min(span, self.now - mirror.capped_since) * PPM
            mirror.refill(self.now)

    # Leases

    @rule(lease=leases, share=shares)
    def join(self, lease: str, share: Share) -> None:
        others = sum(m.share.request_ppm for k, m in self.mirrors.items() if k != lease)
        fits = others + share.request_ppm <= PPM
        new = lease not in self.mirrors
        if fits and new:
            # Credit and debt of an earlier life are not mirrored: such a bucket is the scheduler's.
            self.mirrors[lease] = Mirror(share, at=self.now, capped_since=self.now)
        elif fits:
            self.reshape(self.mirrors[lease], share)
        actions = self.say(on.Joined(lease, share, self.payer(lease)))
        refused = [a for a in actions if isinstance(a, do.Refused)]
        assert bool(refused) == (not fits)
        if refused:
            assert refused[0].over_ppm == others + share.request_ppm - PPM
            assert refused[0].fits_ppm == max(PPM - others, 0)

    def reshape(self, mirror: Mirror, share: Share) -> None:
        if mirror.share.limit_ppm < PPM:
            mirror.refill(self.now)
        else:
            mirror.capped_since = self.now
        mirror.at = self.now
        mirror.share = share

    @precondition(lambda self: self.mirrors)
    @rule(lease=leases, share=shares)
    def resize(self, lease: str, share: Share) -> None:
        mirror = self.mirrors.get(lease)
        others = sum(m.share.request_ppm for k, m in self.mirrors.items() if k != lease)
        if mirror is not None and others + share.request_ppm <= PPM:
            self.reshape(mirror, share)
        self.say(on.Resized(lease, share))

    @rule(lease=leases)
    def leave(self, lease: str) -> None:
        self.mirrors.pop(lease, None)
        self.say(on.Left(lease))

    # Work

    @rule(lease=leases)
    def wake(self, lease: str) -> None:
        mirror = self.mirrors.get(lease)
        if mirror is not None:
            mirror.wants = True
        self.say(on.Woke(lease))

    @rule()
    def wake_all(self) -> None:
        for lease in list(self.mirrors):
            self.wake(lease)

    @rule(lease=leases)
    def sleep(self, lease: str) -> None:
        mirror = self.mirrors.get(lease)
        if mirror is not None and (self.held is None or self.held.lease != lease):
            mirror.wants = False
        self.say(on.Slept(lease))

    @rule(lease=leases)
    def pause(self, lease: str) -> None:
        if lease in self.mirrors:
            self.mirrors[lease].paused = True
        self.say(on.Paused(lease))

    @rule(lease=leases)
    def resume(self, lease: str) -> None:
        if lease in self.mirrors:
            self.mirrors[lease].paused = False
        self.say(on.Resumed(lease))

    @rule(span=st.integers(0, 300 * MS))
    def wait(self, span: int) -> None:
        self.pass_time(span)

    # The holder

    @precondition(lambda self: self.held is not None)
    @rule(span=holds, empty=st.booleans())
    def give_back(self, span: int, empty: bool) -> None:
        assert self.held is not None
        self.pass_time(span)
        if self.held is None:
            return
        held = self.held
        used = self.end_hold(held)
        self.held = None
        mirror = self.mirrors[held.lease]
        mirror.wants = not empty
        back = on.Returned(held.lease, held.gen, used, used, empty)
        actions = self.say(back)
        if any(isinstance(action, do.Extend) for action in actions):
            self.ended -= 1
        self.served(held.lease)

    @precondition(lambda self: self.held is not None)
    @rule(turns=st.integers(1, 30), span=holds)
    def take_turns(self, turns: int, span: int) -> None:
        for _ in range(turns):
            if self.held is None:
                return
            self.give_back(span, False)

    @precondition(lambda self: self.held is not None)
    @rule(span=holds)
    def progress(self, span: int) -> None:
        assert self.held is not None
        self.pass_time(span)
        if self.held is not None:
            used = self.now - self.held.since
            self.book(self.held, used)
            self.held.since = self.now
            self.say(on.Progressed(self.held.lease, self.held.gen, used, used))

    @precondition(lambda self: self.held is not None)
    @rule()
    def near_end(self) -> None:
        assert self.held is not None
        self.say(on.NearEnd(self.held.lease, self.held.gen))

    @precondition(lambda self: self.held is not None)
    @rule(how=st.sampled_from(["died", "lost"]))
    def vanish(self, how: str) -> None:
        assert self.held is not None
        held = self.held
        self.say(on.Died(held.lease) if how == "died" else on.Lost(held.lease, held.gen))
        assert self.fencing is held

    @precondition(lambda self: self.fencing is not None)
    @rule(span=holds)
    def confirm_fence(self, span: int) -> None:
        self.pass_time(span)
        fencing = self.fencing
        assert fencing is not None
        self.end_hold(fencing)
        self.fencing = None
        self.say(on.Fenced(fencing.lease, fencing.gen))
        self.served(fencing.lease)

    @rule(lease=leases, back=st.integers(1, 3), held=holds)
    def return_late(self, lease: str, back: int, held: int) -> None:
        before = self.tokens.charged_ns
        gen = self.last_gen - back
        actions = self.say(on.Returned(lease, gen, held, held, True))
        assert do.Audit(lease, gen, held) in actions
        assert self.tokens.charged_ns == before

    @rule(lease=leases)
    def die_elsewhere(self, lease: str) -> None:
        if self.held is None or self.held.lease != lease:
            if lease in self.mirrors:
                self.mirrors[lease].wants = False
            self.say(on.Died(lease))

    # Invariants

    @invariant()
    def requests_fit(self) -> None:
        assert sum(m.share.request_ppm for m in self.mirrors.values()) <= PPM
        assert set(self.tokens.leases()) == set(self.mirrors)

    @invariant()
    def charges_are_device_time_minus_idle(self) -> None:
        assert self.tokens.charged_ns == self.charged
        late = self.now - self._heard() if self.held is None and self.fencing is None else 0
        assert self.tokens.device_ns + late == self.charged + self.idle

    def _heard(self) -> int:
        """Returns the scheduler's time: it counts idle time when it gets an event."""
        return self.tokens._clocks.now

    @invariant()
    def every_grant_ends_once(self) -> None:
        out = (self.held is not None) + (self.fencing is not None)
        assert self.granted == self.ended + out

    @invariant()
    def no_idle_device_beside_a_ready_lease(self) -> None:
        if self.held is None and self.fencing is None:
            for lease in self.mirrors:
                assert self.usage(lease).state != "ready"

    @invariant()
    def nobody_waits_for_an_endless_run(self) -> None:
        if self.held is not None and not self.held.ends and not self.held.recalled:
            for lease in self.mirrors:
                assert self.usage(lease).state != "ready"

    @invariant()
    def states_follow_the_events(self) -> None:
        for lease, mirror in self.mirrors.items():
            state = self.usage(lease).state
            if self.held is not None and self.held.lease == lease:
                assert state == "holding"
            elif mirror.paused or not mirror.wants:
                assert state == "off"
            elif self.fencing is None or self.fencing.lease != lease:
                assert state in ("ready", "throttled")
                assert state == "ready" or mirror.share.limit_ppm < PPM

    @invariant()
    def a_debt_is_at_most_one_hold(self) -> None:
        """In any window a lease gets from its request at most r (T + what it was owed) +
        one hold.
        """
        for lease, mirror in self.mirrors.items():
            assert self.usage(lease).owed_ns >= -self.longest - MS, (lease, mirror)

    @invariant()
    def every_runnable_lease_is_served(self) -> None:
        """Within its own debt, the sleep credit, and the holds of all."""
        for lease, mirror in self.mirrors.items():
            waited = self.tokens.device_ns - mirror.served_from
            assert waited <= mirror.debt + self.slack(), (lease, mirror)

    @invariant()
    def requests_are_met(self) -> None:
        """A lease that wants the device is never further below its request than the others may owe
        it: W(T) >= r T - slack.
        """
        for lease, mirror in self.mirrors.items():
            usage = self.usage(lease)
            if usage.state in ("ready", "holding"):
                assert usage.owed_ns <= self.slack(), (lease, mirror)

    def slack(self) -> int:
        out = self.held or self.fencing
        longest = max(self.longest, 0 if out is None else self.now - out.began)
        credit = max(PARAMS.sleep_credit_ns, 2 * longest)
        return min(credit, PARAMS.sleep_credit_max_ns) + (len(LEASES) + 2) * longest

    def debt(self, lease: str) -> int:
        """How long the device's clock takes to reach the lease's tag."""
        mirror = self.mirrors[lease]
        poor = sum(1 for m in self.mirrors.values() if not m.share.request_ppm)
        asked = sum(m.share.request_ppm for m in self.mirrors.values())
        total = max(PPM, asked + (PARAMS.floor_ppm if poor else 0))
        rate = mirror.share.request_ppm or PARAMS.floor_ppm / poor
        return int(max(-self.usage(lease).owed_ns, 0) * total / rate * 1.001)

    @invariant()
    def queues_stay_small(self) -> None:
        assert self.tokens.queued_entries <= 3 * (2 * len(LEASES) + 65)


MANY = settings(
    max_examples=100,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
