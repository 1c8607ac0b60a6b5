"""Owners, borrowers and strangers fill devices in any order. No amount is promised twice, no tenant
loses its own amounts, and lent amounts come back.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Amount, Code, Device, LeaseState, PageState, Quota, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.quota import total
from rgpu_server.core.shares import Change

MIB = 1 << 20
POLICY = Policy(
    warm_workers=0,
    max_tenants=2,
    max_idle_leases=3,
    grace_seconds=3,
    settle_seconds=0,
    reclaim_seconds=4,
    claim_seconds=6,
    max_ttl_seconds=1e6,
)
OWNED = Amount(700_000, 64 * MIB)
TENANTS = {
    "alice": TenantPolicy(quota={"m": OWNED}, borrow=True, max_priority=5),
    "carol": TenantPolicy(quota={"m": OWNED}, pools=("public",), max_priority=5),
    "dave": TenantPolicy(quota={"m": Amount()}, borrow=True, borrow_share_ppm=500_000),
    "bob": TenantPolicy(memory_bytes=96 * MIB, share_ppm=600_000),
}
NAMES = st.sampled_from([*TENANTS, "alice", "dave", "carol", "x", "y", "z"])
SIZES = st.sampled_from([8 * MIB, 16 * MIB, 32 * MIB, 48 * MIB])
SHARES = st.sampled_from([0, 100_000, 200_000, 300_000, 500_000])
ASKS = st.tuples(NAMES, SIZES, SHARES, st.sampled_from([None, None, 4]))
PLACES = st.integers(0, 20)


class Owners(RuleBasedStateMachine):
    """A node whose programs start at once, hold all of their lease, and end when told to."""

    @initialize()
    def start(self) -> None:
        pools = ("public", "public", "special")
        devices = [Device(n, "lib", 96 * MIB, 16 * MIB, "m", pool) for n, pool in enumerate(pools)]
        self.node = Node(devices, POLICY, TENANTS)
        self.now = 0.0
        self.number = 0
        self.pages: dict[str, tuple[Quota, PageState]] = {}
        self.running: dict[int, int] = {}  # session -> worker
        self.obeys = True

    def feed(self, event: on.Event) -> list[do.Action]:
        actions = self.node.handle(event, self.now)
        for action in actions:
            if isinstance(action, do.MakePage):
                self.pages[action.lease] = (action.quota, PageState.ACTIVE)
            elif isinstance(action, do.UpdatePage):
                assert action.lease in self.pages
                self.pages[action.lease] = (action.quota, action.state)
            elif isinstance(action, do.DropPage):
                del self.pages[action.lease]
        for action in actions:
            if isinstance(action, do.StartWorker):
                self.feed(on.WorkerReady(action.worker))
            elif isinstance(action, do.AssignWorker):
                self.running[action.session] = action.worker
                self.feed(on.SessionOpened(action.worker))
            elif isinstance(action, do.KillWorker) or (
                isinstance(action, do.EndSession) and self.obeys
            ):
                self.end(action.worker)
        return actions

    def end(self, worker: int) -> None:
        session = next((s for s, w in self.running.items() if w == worker), None)
        if session is not None:
            del self.running[session]
            self.feed(on.WorkerExited(worker, "it ended"))

    def lease(self, place: int) -> str:
        leases = [lease.id for lease in self.node.leases]
        return leases[place % len(leases)]

    def some(self) -> bool:
        return bool(list(self.node.leases))

    @rule(asks=st.lists(ASKS, min_size=1, max_size=4))
    def grants(self, asks: list[tuple[str, int, int, int | None]]) -> None:
        for ask in asks:
            self.grant(*ask)

    def grant(self, tenant: str, memory: int, share: int, priority: int | None) -> None:
        self.number += 1
        wish = Wish(None, memory, share, priority=priority)
        before = self.node.leases.holdings()
        actions = self.feed(on.LeaseRequested(self.number, tenant, "", wish, 1e4))
        refused = [a.refusal for a in actions if isinstance(a, do.Refuse)]
        if tenant == "carol" and refused:
            self.check_refusal(refused[0].code, Amount(share, memory), before)

    def check_refusal(self, code: Code, asked: Amount, before: list[object]) -> None:
        """Checks a refusal to an owner: it asked for more than it owns, or other tenants use their
        own amounts.
        """
        book = self.node.leases
        held = book.quotas.held("carol", "m", book.holdings())
        if held.share_ppm + asked.share_ppm > OWNED.share_ppm:
            return
        if held.memory_bytes + asked.memory_bytes > OWNED.memory_bytes or code is Code.LENT:
            return
        shares, memories = book.borrowing()
        for device in self.node.devices[:2]:
            here = [h for h in book.holdings() if h.device == device.ordinal and not h.idle]
            share = total(h for h in here if h.lease not in shares).share_ppm
            memory = total(h for h in here if h.lease not in memories).memory_bytes
            assert (
                share + asked.share_ppm > 1_000_000
                or memory + asked.memory_bytes > device.memory_bytes
                or any(not h.active for h in here)
            )

    @rule(tenant=NAMES, key=st.sampled_from("abcdef"), memory=SIZES, share=SHARES)
    def open_session(self, tenant: str, key: str, memory: int, share: int) -> None:
        self.number += 1
        wish = Wish(None, memory, share)
        self.feed(on.SessionRequested(self.number, tenant, key, "box", wish, "10.0.0.1"))

    @rule(place=PLACES)
    def program_ends(self, place: int) -> None:
        if self.running:
            sessions = sorted(self.running)
            self.end(self.running[sessions[place % len(sessions)]])

    @precondition(lambda self: self.some())
    @rule(place=PLACES, memory=st.none() | SIZES, share=st.none() | SHARES, kill=st.booleans())
    def resize(self, place: int, memory: int | None, share: int | None, kill: bool) -> None:
        self.number += 1
        lease = self.node.leases.get(self.lease(place))
        assert lease is not None
        used = {s: lease.amount.memory_bytes // len(lease.slots) for s in lease.slots.values()}
        change = Change(memory, None, share, 1_000_000 if share is not None else None)
        self.feed(on.ResizeRequested(self.number, lease.id, change, used, kill))

    @rule(part=st.sampled_from([0, 2]))
    def programs_free_memory(self, part: int) -> None:
        leases = [self.node.leases.get(lease) for lease in self.node.leases.oversize()]
        self.feed(on.MemoryObserved({x.id: x.held_bytes * part // 3 for x in leases if x}))

    @precondition(lambda self: len(list(self.node.leases)) > 6)
    @rule(place=PLACES)
    def revoke(self, place: int) -> None:
        self.number += 1
        self.feed(on.RevokeRequested(self.number, self.lease(place)))

    @precondition(lambda self: self.some())
    @rule(place=PLACES, paused=st.booleans())
    def pause(self, place: int, paused: bool) -> None:
        self.number += 1
        self.feed(on.PauseRequested(self.number, self.lease(place), paused))

    @rule(obeys=st.booleans())
    def workers_obey(self, obeys: bool) -> None:
        """Or have to be killed, and hold their memory until then."""
        self.obeys = obeys

    @rule(seconds=st.sampled_from([0.5, 1.5, 4.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.feed(on.TimePassed())

    @invariant()
    def no_device_is_promised_twice(self) -> None:
        for device in self.node.devices:
            here = [h for h in self.node.leases.holdings() if h.device == device.ordinal]
            assert total(here).memory_bytes <= device.memory_bytes
            assert total(here).share_ppm <= 1_000_000

    @invariant()
    def nobody_borrows_what_is_not_idle(self) -> None:
        book = self.node.leases
        holdings = book.holdings()
        borrowed, lent = book.quotas.balance("m", holdings, {})
        assert borrowed.share_ppm <= lent.share_ppm
        # Borrowed memory beyond the lent memory is on its way back.
        ending = sum(h.amount.memory_bytes for h in holdings if not h.active)
        oversize = sum(x.held_bytes for x in book if x.held_bytes > x.quota.memory_bytes)
        assert borrowed.memory_bytes <= lent.memory_bytes + ending + oversize

    @invariant()
    def loans_are_those_of_what_leases_hold_now(self) -> None:
        """`borrowing` remembers its last answer."""
        book = self.node.leases
        assert book.borrowing() == book.quotas.borrowing(book.holdings())

    @invariant()
    def totals_are_the_sums_of_what_leases_hold(self) -> None:
        """They are counted at each change."""
        book = self.node.leases
        for device in self.node.devices:
            here = [h for h in book.holdings() if h.device == device.ordinal]
            assert book.total_on(device.ordinal) == total(here)
        weak = {x.id for x in book if x.quota.share_request_ppm < x.asked_share_ppm}
        assert book.weak() == weak

    @invariant()
    def what_a_tenant_owns_is_not_taken(self) -> None:
        book = self.node.leases
        shares, memories = book.borrowing()
        for lease in book:
            weak = lease.quota.share_request_ppm < lease.asked_share_ppm
            assert not weak or lease.key.tenant in ("alice", "dave")
            assert lease.quota.share_request_ppm in (0, lease.asked_share_ppm)
            if lease.reclaim_at is not None:
                assert lease.id in memories
                assert lease.key.tenant in ("alice", "dave")
            if lease.state is LeaseState.RECLAIMED:
                assert lease.key.tenant in ("alice", "dave")
        assert all(h.tenant in ("alice", "dave") for h in book.holdings() if h.lease in shares)
        for tenant in ("alice", "carol", "dave"):
            own = book.quotas.owned(tenant, "m")
            mine = [h for h in book.holdings() if h.tenant == tenant]
            assert own is not None
            assert total(h for h in mine if h.lease not in shares).share_ppm <= own.share_ppm
            inside = total(h for h in mine if h.lease not in memories)
            assert inside.memory_bytes <= own.memory_bytes
            assert tenant != "dave" or total(mine).share_ppm <= 500_000
            assert tenant != "carol" or all(h.device < 2 for h in mine)

    @invariant()
    def ceilings_and_bounds_hold(self) -> None:
        leases = list(self.node.leases)
        bob = [lease.quota for lease in leases if lease.key.tenant == "bob"]
        assert sum(quota.memory_bytes for quota in bob) <= 96 * MIB
        assert sum(quota.share_request_ppm for quota in bob) <= 600_000
        unnamed = {x.key.tenant for x in leases if x.key.tenant not in TENANTS and not x.idle}
        assert len(unnamed) <= POLICY.max_tenants
        assert sum(1 for lease in leases if lease.idle) <= POLICY.max_idle_leases

    @invariant()
    def pages_say_what_leases_have(self) -> None:
        assert set(self.pages) == {lease.id for lease in self.node.leases}
        for lease in self.node.leases:
            quota, state = self.pages[lease.id]
            assert quota == lease.quota
            if lease.state is LeaseState.ACTIVE:
                assert state is (PageState.PAUSED if lease.paused else PageState.ACTIVE)
            else:
                assert state is PageState.ENDED

    def teardown(self) -> None:
        """After all other tenants have left, the remaining one has what it asked for. In the end
        nothing is left.
        """
        if not hasattr(self, "node"):
            return
        self.obeys = True
        for lease in list(self.node.leases):
            if lease.key.tenant != "alice" and self.node.leases.get(lease.id) is not None:
                self.feed(on.RevokeRequested(0, lease.id))
        self.now += POLICY.reclaim_seconds + POLICY.claim_seconds + 10
        self.feed(on.TimePassed())
        for lease in self.node.leases:
            assert lease.key.tenant == "alice"
            assert lease.reclaim_at is None
        self.now += 1e6
        self.feed(on.TimePassed())
        self.feed(on.StopRequested(end_sessions=True))
        self.now += 10
        self.feed(on.TimePassed())
        assert self.pages == {}


def test_what_makes_way_for_one_may_be_what_another_was_asked_back_for() -> None:
    """An empty lease went for one that got its share back; then the notice of the next was void."""
    state = Owners()
    state.start()
    state.open_session(tenant="alice", key="a", memory=8 * MIB, share=0)
    state.program_ends(0)
    state.open_session(tenant="z", key="a", memory=32 * MIB, share=0)
    state.open_session(tenant="dave", key="c", memory=16 * MIB, share=200_000)
    state.open_session(tenant="dave", key="a", memory=8 * MIB, share=200_000)
    state.grants(
        [
            ("carol", 48 * MIB, 0, None),
            ("alice", 48 * MIB, 300_000, None),
            ("y", 8 * MIB, 0, None),
            ("alice", 8 * MIB, 0, None),
        ]
    )
    state.revoke(6)
    state.grants([("alice", 32 * MIB, 0, None)])
    state.grants([("x", 8 * MIB, 0, None), ("x", 8 * MIB, 100_000, None)])
    state.grants([("alice", 32 * MIB, 100_000, None)])
    state.open_session(tenant="alice", key="a", memory=16 * MIB, share=200_000)
    state.grants([("alice", 8 * MIB, 0, None)])
    state.grants(
        [
            ("alice", 8 * MIB, 0, None),
            ("alice", 8 * MIB, 100_000, None),
            ("bob", 8 * MIB, 0, None),
            ("carol", 8 * MIB, 200_000, None),
        ]
    )
    state.resize(place=12, memory=8 * MIB, share=100_000, kill=False)
    state.grants([("alice", 8 * MIB, 0, None), ("carol", 8 * MIB, 100_000, None)])
    state.grants([("alice", 8 * MIB, 0, None), ("alice", 8 * MIB, 0, None)])
    state.grants([("carol", 8 * MIB, 200_000, None)])
    assert any(lease.reclaim_at is not None for lease in state.node.leases)
    state.program_ends(3)
    state.what_a_tenant_owns_is_not_taken()
    state.teardown()


Owners.TestCase.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
TestOwners = Owners.TestCase
