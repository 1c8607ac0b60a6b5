"""Whatever the order of events and deaths: no over-commit, every grant ends, nothing is lost."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rgpu_common.sharing import SharePolicy
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Amount, Device, LeaseState, PageState, Quota, SessionState, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change

MIB = 1 << 20
KEYS = st.sampled_from(["", "a", "b", "c", "d"])
TENANTS = st.sampled_from(["alice", "bob", "carol", "dave", "stranger"])
SIZES = st.sampled_from([0, 1, 16 * MIB, 32 * MIB, 60 * MIB, 100 * MIB, 200 * MIB])
SHARES = st.sampled_from([0, 100_000, 200_000, 300_000, 500_000, 1_000_000, 2_000_000])
# Most wishes make sense, so that devices fill up; a few ask for what cannot be.
SENSIBLE = st.builds(
    Wish,
    st.sampled_from([None, None, 0, 1]),
    st.sampled_from([0, 16 * MIB, 32 * MIB, 60 * MIB]),
    st.sampled_from([0, 100_000, 200_000, 300_000, 500_000]),
)
ODD = st.builds(
    Wish,
    st.sampled_from([None, 0, 1, 5]),
    SIZES,
    SHARES,
    SHARES,
    st.sampled_from([0, 0, 250_000]),
    st.none() | st.sampled_from(SharePolicy),
    st.sampled_from([None, 0, 3, 200]),
    st.sampled_from([None, 1, 2, 0]),
)
WISHES = st.one_of(SENSIBLE, SENSIBLE, SENSIBLE, ODD)
# A lease that there is, by its place, or one that there is not.
PLACES = st.integers(0, 12)
# bob has ceilings; only alice and carol own parts; dave owns nothing and borrows; strangers have no
# quota at all.
OWNED = Amount(700_000, 64 * MIB)
TENANT_POLICIES = {
    "bob": TenantPolicy(2, 64 * MIB, 1_200_000, max_priority=5, max_weight=3),
    "alice": TenantPolicy(quota={"m": OWNED}, borrow=True, max_priority=5),
    "carol": TenantPolicy(quota={"m": OWNED}, pools=("public",)),
    "dave": TenantPolicy(quota={"m": Amount()}, borrow=True, borrow_share_ppm=500_000),
}
POLICY = Policy(
    slots=3,
    max_sessions=6,
    ttl_seconds=10,
    grace_seconds=3,
    settle_seconds=0.5,
    memory_seconds=20,
    open_seconds=5,
    end_seconds=2,
    warm_workers=1,
    max_starting=2,
    max_tenants=1,
    max_idle_leases=2,
    max_waiting=(4, 2, 4),
    reclaim_seconds=2,
    claim_seconds=4,
)


class Server(RuleBasedStateMachine):
    """A shell that carries out the node's actions. hypothesis chooses the events of clients and
    workers.
    """

    @initialize()
    def start(self) -> None:
        pools = ["public", "special"]
        devices = [Device(n, f"library-{n}", 128 * MIB, 32 * MIB, "m", pools[n]) for n in range(2)]
        self.node = Node(devices, POLICY, TENANT_POLICIES)
        self.page_states: dict[str, PageState] = {}
        self.quotas: dict[str, Quota] = {}
        self.now = 0.0
        self.number = 0
        self.pages: dict[str, dict[int, int]] = {}
        self.workers: dict[int, int | None] = {}  # worker -> session
        self.warm: set[int] = set()
        self.asked: set[int] = set()  # sessions that have neither been refused nor forgotten
        self.refused: set[int] = set()
        self.answered: set[int] = set()
        self.killed: set[int] = set()
        self.told: set[int] = set()
        self.claims: set[int] = set()  # that have neither been granted nor refused
        self.held: set[int] = set()  # granted ones, whose run goes on
        self.feed(on.Started())

    def feed(self, event: on.Event) -> None:
        for action in self.node.handle(event, self.now):
            self.carry_out(action)

    def carry_out(self, action: do.Action) -> None:
        if isinstance(action, do.StartWorker):
            self.workers[action.worker] = None
        elif isinstance(action, do.StopWorker):
            assert self.workers[action.worker] is None
            self.told.add(action.worker)
        elif isinstance(action, do.AssignWorker):
            assert action.worker in self.warm
            assert self.pages[action.lease][action.slot] == action.session
            self.warm.discard(action.worker)
            self.workers[action.worker] = action.session
        elif isinstance(action, do.EndSession):
            assert self.workers[action.worker] == action.session
            self.told.add(action.worker)
        elif isinstance(action, do.KillWorker):
            self.killed.add(action.worker)
        elif isinstance(action, do.RefuseSession):
            assert action.session in self.asked
            assert action.session not in self.refused
            assert action.refusal.sentence
            self.refused.add(action.session)
            if self.node.sessions.get(action.session) is None:
                self.asked.discard(action.session)
        elif isinstance(action, do.ForgetSession):
            self.asked.discard(action.session)
        elif isinstance(action, do.GrantClaim):
            self.claims.remove(action.claim)
            self.held.add(action.claim)
        elif isinstance(action, do.RefuseClaim):
            self.claims.remove(action.claim)
            assert action.refusal.sentence
        elif isinstance(action, do.TellPlace):
            assert action.claim in self.claims
            assert 1 <= action.place <= action.waiting
        elif isinstance(action, (do.Answer, do.Refuse)):
            assert action.request not in self.answered
            self.answered.add(action.request)
        else:
            self.change_page(action)

    def change_page(self, action: do.Action) -> None:
        if isinstance(action, do.MakePage):
            assert action.lease not in self.pages
            self.pages[action.lease] = {}
            self.page_states[action.lease] = PageState.ACTIVE
            self.quotas[action.lease] = action.quota
        elif isinstance(action, do.UpdatePage):
            assert action.lease in self.pages
            self.page_states[action.lease] = action.state
            self.quotas[action.lease] = action.quota
        elif isinstance(action, do.TakeSlot):
            page = self.pages[action.lease]
            assert action.slot == min(set(range(POLICY.slots)) - set(page))
            page[action.slot] = action.session
        elif isinstance(action, do.ClearSlot):
            session = self.pages[action.lease].pop(action.slot)
            assert session not in self.workers.values(), "the slot of a living worker was cleared"
        elif isinstance(action, do.DropPage):
            assert self.pages.pop(action.lease) == {}

    def name(self, place: int) -> str:
        leases = [lease.id for lease in self.node.leases]
        return leases[place % len(leases)] if leases and place < 12 else "lease-99"

    def request(self) -> int:
        self.number += 1
        return self.number

    @rule(tenant=TENANTS, key=KEYS, wish=WISHES, ttl=st.sampled_from([0.0, 1.0, 50.0, 50.0, -1.0]))
    def grant(self, tenant: str, key: str, wish: Wish, ttl: float) -> None:
        number = self.request()
        self.feed(on.LeaseRequested(number, tenant, key, wish, ttl))
        assert number in self.answered

    @rule(lease=PLACES)
    def keep_alive(self, lease: int) -> None:
        number = self.request()
        self.feed(on.KeepAliveRequested(number, self.name(lease)))
        assert number in self.answered

    @rule(
        lease=PLACES,
        memory=st.none() | SIZES,
        request=st.none() | SHARES,
        policy=st.none() | st.sampled_from(SharePolicy),
        kill=st.booleans(),
    )
    def resize(
        self,
        lease: int,
        memory: int | None,
        request: int | None,
        policy: SharePolicy | None,
        kill: bool,
    ) -> None:
        number = self.request()
        change = Change(memory, None, request, None, policy)
        found = self.node.leases.get(self.name(lease))
        # Each session holds all that its lease may have, divided evenly.
        used = {}
        if found is not None and found.slots:
            each = found.amount.memory_bytes // len(found.slots)
            used = dict.fromkeys(found.slots.values(), each)
        self.feed(on.ResizeRequested(number, self.name(lease), change, used, kill))
        assert number in self.answered

    @rule(lease=PLACES, paused=st.booleans())
    def pause(self, lease: int, paused: bool) -> None:
        number = self.request()
        self.feed(on.PauseRequested(number, self.name(lease), paused))
        assert number in self.answered

    @rule(part=st.sampled_from([0, 2]))
    def programs_free_memory(self, part: int) -> None:
        leases = [self.node.leases.get(lease) for lease in self.node.leases.oversize()]
        self.feed(on.MemoryObserved({x.id: x.held_bytes * part // 3 for x in leases if x}))

    @precondition(lambda self: self.number % 13 == 0)
    @rule(seconds=st.sampled_from([None, 0.0, 4.0, -1.0]))
    def drain(self, seconds: float | None) -> None:
        number = self.request()
        self.feed(on.DrainRequested(number, seconds))
        assert number in self.answered

    @precondition(lambda self: self.node.standing.drain is not None)
    @rule()
    def undrain(self) -> None:
        number = self.request()
        self.feed(on.UndrainRequested(number))
        assert number in self.answered

    @rule(lease=PLACES)
    def revoke(self, lease: int) -> None:
        number = self.request()
        self.feed(on.RevokeRequested(number, self.name(lease)))
        assert number in self.answered

    @rule(tenant=TENANTS, key=KEYS, wish=WISHES)
    def open_session(self, tenant: str, key: str, wish: Wish) -> None:
        number = self.request()
        self.asked.add(number)
        self.feed(on.SessionRequested(number, tenant, key, "box", wish, "10.0.0.1"))
        assert (
            number in self.refused
            or number in self.node.settling
            or self.node.sessions.get(number) is not None
        )

    @rule(
        tenant=TENANTS,
        key=KEYS,
        wish=WISHES,
        own=st.booleans(),
        wait=st.sampled_from([0.0, 2.0, 50.0, 50.0]),
    )
    def claim(self, tenant: str, key: str, wish: Wish, own: bool, wait: float) -> None:
        number = self.request()
        self.claims.add(number)
        key = f"run-{number}" if own else key
        self.feed(
            on.ClaimRequested(number, tenant, key, "box", wish, "10.0.0.1", own, wait)
        )  # fmt: skip

    @rule(data=st.data())
    def claim_leaves(self, data: st.DataObject) -> None:
        if self.claims | self.held:
            claim = data.draw(st.sampled_from(sorted(self.claims | self.held)))
            self.claims.discard(claim)
            self.held.discard(claim)
            self.feed(on.ClaimLeft(claim))

    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        if self.asked:
            self.feed(on.ClientLeft(data.draw(st.sampled_from(sorted(self.asked)))))

    @rule(data=st.data())
    def worker_is_ready(self, data: st.DataObject) -> None:
        cold = sorted(w for w, s in self.workers.items() if s is None and w not in self.warm)
        if cold:
            worker = data.draw(st.sampled_from(cold))
            self.warm.add(worker)
            self.feed(on.WorkerReady(worker))

    @rule(data=st.data(), welcome=st.booleans())
    def worker_answers(self, data: st.DataObject, welcome: bool) -> None:
        busy = sorted(w for w, s in self.workers.items() if s is not None)
        if busy:
            worker = data.draw(st.sampled_from(busy))
            self.feed(on.SessionOpened(worker) if welcome else on.SessionRefusedByWorker(worker))

    @rule(data=st.data())
    def worker_exits(self, data: st.DataObject) -> None:
        if self.workers:
            self.exit(data.draw(st.sampled_from(sorted(self.workers))))

    def exit(self, worker: int) -> None:
        del self.workers[worker]
        self.warm.discard(worker)
        self.killed.discard(worker)
        self.told.discard(worker)
        self.feed(on.WorkerExited(worker, "it ended"))

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 3.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.feed(on.TimePassed())

    @precondition(lambda self: self.number % 31 == 30)
    @rule(end=st.booleans())
    def stop(self, end: bool) -> None:
        self.feed(on.StopRequested(end))

    @invariant()
    def no_device_is_over_committed(self) -> None:
        for device in self.node.devices:
            leases = [lease for lease in self.node.leases if lease.device == device.ordinal]
            assert sum(lease.amount.memory_bytes for lease in leases) <= device.memory_bytes
            assert sum(lease.quota.share_request_ppm for lease in leases) <= 1_000_000

    @invariant()
    def ceilings_and_bounds_hold(self) -> None:
        for tenant in ("alice", "bob", "carol", "dave", "stranger"):
            leases = [lease for lease in self.node.leases if lease.key.tenant == tenant]
            assert sum(1 for lease in leases if lease.idle) <= POLICY.max_idle_leases
            if tenant == "bob":
                assert sum(lease.quota.share_request_ppm for lease in leases) <= 1_200_000
            if tenant == "carol":
                assert all(lease.device == 0 for lease in leases)

    @invariant()
    def pages_say_what_leases_have(self) -> None:
        for lease in self.node.leases:
            assert self.quotas[lease.id] == lease.quota
            if lease.state is LeaseState.ACTIVE:
                wanted = PageState.PAUSED if lease.paused else PageState.ACTIVE
                assert self.page_states[lease.id] is wanted
            assert 0 <= lease.quota.share_request_ppm <= lease.quota.share_limit_ppm
            assert lease.quota.share_request_ppm in (0, lease.asked_share_ppm)
        bob = [lease for lease in self.node.leases if lease.key.tenant == "bob"]
        assert sum(lease.quota.memory_bytes for lease in bob) <= 64 * MIB

    @invariant()
    def pages_and_sessions_agree(self) -> None:
        assert {lease.id: lease.slots for lease in self.node.leases} == self.pages
        held = {s for page in self.pages.values() for s in page.values()}
        assert held == {session.id for session in self.node.sessions}
        assert held | set(self.node.settling) == self.asked
        assert not held & set(self.node.settling)

    @invariant()
    def claims_hold_leases_or_wait(self) -> None:
        assert {claim for lease in self.node.leases for claim in lease.holders} <= self.held
        waiting = {waiter.event.claim for waiter in self.node.line}
        assert waiting <= self.claims
        assert len(waiting) <= POLICY.max_waiting[0]
        assert all(waiter.place for waiter in self.node.line)
        kept = self.node.kept
        places = len(self.node.sessions) + len(self.node.settling) + len(kept)
        # A session that leaves a claimed lease, and comes back within a minute, finds its place.
        assert places <= POLICY.max_sessions
        assert len(kept) <= max(POLICY.max_sessions // 4, 1)
        held = {lease.key for lease in self.node.leases if lease.holders and not lease.slots}
        assert set(kept) <= held

    @invariant()
    def what_must_end_has_an_end(self) -> None:
        for lease in self.node.leases:
            if lease.state is LeaseState.ACTIVE:
                assert lease.ends_at is not None or lease.used
        for session in self.node.sessions:
            if session.state in (SessionState.WAITING, SessionState.OPENING):
                assert session.deadline is not None

    def teardown(self) -> None:
        """After all clients have left and time has passed, everything has ended."""
        if not hasattr(self, "node"):
            return
        while gone := self.claims | self.held:
            claim = min(gone)
            self.claims.discard(claim)
            self.held.discard(claim)
            self.feed(on.ClaimLeft(claim))
        self.feed(on.StopRequested(end_sessions=True))
        for worker in sorted(self.workers):
            self.exit(worker)
        for _ in range(20):
            self.now += 30.0
            self.feed(on.TimePassed())
        assert list(self.node.leases) == []
        assert list(self.node.sessions) == []
        assert not self.node.settling
        assert self.pages == {}
        assert not self.asked


Server.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestServer = Server.TestCase
