"""Tenants' quotas: owning, borrowing, giving back."""

from __future__ import annotations

from core.quota_node import GIB, POLICY, ask, granted, node, owns, refusal, shares

from rgpu_common.sharing import SharePolicy
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Amount, Code, Device, LeaseState, PageState, Quota
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change

# Ownership


def test_the_sum_over_all_leases_and_devices_counts() -> None:
    n = node(devices=2, alice=owns(1.5, 10))
    assert granted(ask(n, "alice", "a", 0.9, 4))
    assert granted(ask(n, "alice", "b", 0.5, 4))
    assert refusal(ask(n, "alice", "c", 0.2, 1)) == (
        Code.TENANT_LIMIT,
        "tenant 'alice' is at its quota of 'm': 20% is 10% too much: it owns 150%, holds 140%, "
        "and 10% fits, and it may not borrow",
    )
    assert refusal(ask(n, "alice", "c", 0.1, 3)) == (
        Code.TENANT_LIMIT,
        "tenant 'alice' is at its quota of 'm': 3 GiB is 1 GiB too much: it owns 10 GiB, holds "
        "8 GiB, and 2 GiB fits, and it may not borrow",
    )
    assert granted(ask(n, "alice", "c", 0.1, 2))


def test_absent_tenants_and_absent_models() -> None:
    assert granted(ask(node(alice=owns(1, 8)), "bob", "b", 1, 8))
    strict = Policy(warm_workers=0, absent_tenant_unlimited=False, max_ttl_seconds=1e6)
    code, text = refusal(ask(node(strict, alice=owns(1, 8)), "bob", "b", 0.1, 1))
    assert code is Code.TENANT_LIMIT
    assert "tenant 'bob' has no quota and this server serves only tenants that have one" in text

    other = TenantPolicy(quota={"another model": Amount(1_000_000, GIB)})
    code, text = refusal(ask(node(alice=other), "alice", "a", 0.1, 1))
    assert "tenant 'alice' has no quota of 'm' (quota.absent_model)" in text
    open_minded = Policy(warm_workers=0, absent_model_unlimited=True, max_ttl_seconds=1e6)
    assert granted(ask(node(open_minded, alice=other), "alice", "a", 1, 8))


def test_everybody_else_has_a_quota_each() -> None:
    n = node(everybody=owns(0.4, 2), alice=owns(1, 8))
    assert granted(ask(n, "bob", "b", 0.4, 2))
    assert granted(ask(n, "carol", "c", 0.4, 2))
    assert not granted(ask(n, "bob", "b2", 0.1, 1))


def test_pools() -> None:
    devices = [
        Device(0, "lib", 8 * GIB, GIB, "m", "public"),
        Device(1, "lib", 8 * GIB, GIB, "m", "teamA"),
    ]
    tenants = {"bob": TenantPolicy(pools=("public",)), "eve": TenantPolicy(pools=("none",))}
    n = Node(devices, POLICY, tenants)
    assert granted(ask(n, "bob", "b", 0.5, 4))
    assert granted(ask(n, "bob", "b2", 0.5, 4))
    assert [lease.device for lease in n.leases] == [0, 0]
    # Device 1 is free, but not his.
    code, text = refusal(ask(n, "bob", "b3", 0, 1))
    assert code is Code.NO_MEMORY
    assert "device 1" not in text
    assert refusal(ask(n, "bob", "b3", 0, 1, device=1)) == (
        Code.TENANT_LIMIT,
        "tenant 'bob' may use devices of the pools public, and device 1 is in 'teamA'; "
        "leave the device out or ask the operator",
    )
    assert refusal(ask(n, "eve", "e", 0, 1))[1] == (
        "tenant 'eve' may use devices of the pools none, and no device of this server is in one of "
        "them; ask the operator for another pool, or use another server"
    )
    assert granted(ask(n, "alice", "a", 0.5, 4))


def test_a_share_ceiling_over_all_devices() -> None:
    n = node(devices=2, alice=TenantPolicy(share_ppm=1_200_000))
    assert granted(ask(n, "alice", "a", 0.7, 1))
    assert refusal(ask(n, "alice", "b", 0.7, 1)) == (
        Code.TENANT_LIMIT,
        "tenant 'alice' may lease a share of 120%, and 50% of it is free: "
        "20% too little for 70% more",
    )


# Borrowing


def test_what_others_leave_idle_can_be_borrowed_and_no_more() -> None:
    n = node(alice=owns(0.5, 4, borrow=True), bob=owns(0.5, 4))
    assert granted(ask(n, "bob", "b", 0.2, 1))
    assert granted(ask(n, "alice", "a", 0.5, 4))
    assert granted(ask(n, "alice", "a2", 0.3, 3))
    assert n.leases.borrowing() == ({"lease-3"}, {"lease-3"})
    code, text = refusal(ask(n, "alice", "a3", 0.1, 0.5))
    assert code is Code.TENANT_LIMIT
    assert "10% is 10% too much: it owns 50%, holds 80%, and 0% fits" in text
    assert text.endswith("with what others leave idle")
    assert not granted(ask(n, "bob", "b2", 0.4, 1)), "bob may not borrow"


def test_borrowing_has_bounds_and_not_everybody_lends() -> None:
    n = node(
        alice=owns(0.2, 2, borrow=True, borrow_share_ppm=200_000, borrow_memory_bytes=GIB),
        bob=owns(0.8, 6),
    )
    assert refusal(ask(n, "alice", "a", 0.5, 1))[1].startswith(
        "tenant 'alice' may hold at most 40% of 'm', and 50% was asked for, so waiting does not "
        "help"
    )
    assert not granted(ask(n, "alice", "a", 0.1, 4))
    assert granted(ask(n, "alice", "a", 0.4, 3))
    mean = node(alice=owns(0.2, 2, borrow=True), bob=owns(0.8, 6, lend=False))
    assert not granted(ask(mean, "alice", "a", 0.5, 1))


def test_what_is_borrowed_counts_below_the_tenants_ceilings_too() -> None:
    """Beside the reclaim of shares, see `test_a_share_does_not_come_again_past_its_tenants_ceiling`."""
    ceilings = {"memory_bytes": 5 * GIB, "share_ppm": 700_000}
    n = node(devices=2, alice=owns(0.5, 4, borrow=True, **ceilings), bob=owns(1.5, 12))
    assert granted(ask(n, "alice", "a", 0.5, 4))
    assert refusal(ask(n, "alice", "b", 0, 2)) == (
        Code.TENANT_LIMIT,
        "tenant 'alice' may lease 5 GiB, and 1 GiB of it is free: 1 GiB too little for 2 GiB more",
    )
    assert refusal(ask(n, "alice", "b", 0.3, 1)) == (
        Code.TENANT_LIMIT,
        "tenant 'alice' may lease a share of 70%, and 20% of it is free: "
        "10% too little for 30% more",
    )
    assert granted(ask(n, "alice", "b", 0.2, 1))
    assert n.leases.borrowing() == ({"lease-2"}, {"lease-2"})


def test_a_lease_becomes_owned_when_an_earlier_one_ends() -> None:
    n = node(alice=owns(0.5, 4, borrow=True), bob=owns(0.5, 4))
    ask(n, "alice", "a", 0.5, 4)
    ask(n, "alice", "a2", 0.3, 3)
    assert n.leases.borrowing()[0] == {"lease-2"}
    n.handle(on.RevokeRequested(2, "lease-1"), 1.0)
    assert n.leases.borrowing() == (set(), set())


# Giving back


def test_a_borrowed_share_goes_back_at_once_and_comes_again() -> None:
    n = node(alice=owns(0.5, 4, borrow=True), bob=owns(0.5, 4))
    ask(n, "alice", "a", 0.5, 2)
    ask(n, "alice", "a2", 0.3, 2)
    ask(n, "alice", "a3", 0.2, 0.5)
    assert ask(n, "bob", "b", 0.2, 1, 1.0) == [
        do.UpdatePage("lease-3", Quota(GIB // 2, 0), PageState.ACTIVE),
        do.MakePage("lease-4", Quota(GIB, 200_000)),
        do.Answer(1, "lease-4"),
    ]
    ask(n, "bob", "b2", 0.3, 1, 2.0)
    assert shares(n) == {"a": 0.5, "a2": 0.0, "a3": 0.0, "b": 0.2, "b2": 0.3}
    # The same grant again returns the same lease, and keeps it alive.
    assert ask(n, "alice", "a2", 0.3, 2, 2.5) == [do.Answer(1, "lease-2")]
    actions = n.handle(on.RevokeRequested(2, "lease-5"), 3.0)
    assert do.UpdatePage("lease-2", Quota(2 * GIB, 300_000), PageState.ACTIVE) in actions
    assert shares(n) == {"a": 0.5, "a2": 0.3, "a3": 0.0, "b": 0.2}
    n.handle(on.RevokeRequested(2, "lease-4"), 4.0)
    assert shares(n) == {"a": 0.5, "a2": 0.3, "a3": 0.2}


def test_a_share_does_not_come_again_past_its_tenants_ceiling() -> None:
    n = node(devices=2, alice=owns(0, 8, borrow=True, share_ppm=1_000_000), bob=owns(2, 8))
    ask(n, "alice", "a", 0.5, 1, device=0)
    ask(n, "bob", "b", 1, 1, 1.0, device=0)
    assert granted(ask(n, "alice", "a2", 1, 1, 2.0, device=1))
    n.handle(on.RevokeRequested(2, "lease-2"), 3.0)
    assert shares(n) == {"a": 0.0, "a2": 1.0}
    n.handle(on.RevokeRequested(3, "lease-3"), 4.0)
    assert shares(n) == {"a": 0.5}


def test_the_lowest_priority_gives_first_and_only_what_is_needed() -> None:
    n = node(alice=owns(0, 4, borrow=True, max_priority=9), bob=owns(1, 4))
    ask(n, "alice", "low", 0.4, 1, priority=1)
    ask(n, "alice", "high", 0.4, 1, priority=5)
    ask(n, "bob", "b", 0.5, 1)
    assert shares(n) == {"low": 0.0, "high": 0.4, "b": 0.5}


def test_a_fixed_lease_keeps_its_limit() -> None:
    n = node(alice=owns(0, 4, borrow=True), bob=owns(1, 4))
    ask(n, "alice", "a", 0.6, 1, policy=SharePolicy.FIXED)
    ask(n, "bob", "b", 0.5, 1)
    (lease, _) = n.leases
    assert (lease.quota.share_request_ppm, lease.quota.share_limit_ppm) == (0, 600_000)
    assert lease.asked.share_request_ppm == 600_000


def test_borrowed_memory_goes_back_after_a_notice() -> None:
    n = node(alice=owns(0, 2, borrow=True), bob=owns(0, 6), carol=owns(0, 0, borrow=True))
    ask(n, "alice", "a", 0, 2)
    ask(n, "alice", "a2", 0, 4)
    ask(n, "alice", "a3", 0, 2)
    actions = ask(n, "bob", "b", 0, 2, 1.0)
    announced = [a for a in actions if isinstance(a, do.AnnounceReclaim)]
    code, text = refusal(actions)
    assert code is Code.LENT
    assert text == (
        "2 GiB of device 0 are lent to others and have been asked back: try again in 10 s"
    )
    assert [lease.reclaim_at for lease in n.leases] == [None, None, 11.0]  # the youngest is enough
    assert announced == [do.AnnounceReclaim("lease-3", 10.0)]
    assert refusal(ask(n, "bob", "b", 0, 2, 6.0))[1].endswith("try again in 5 s")
    assert n.next_wake(6.0) == 11.0
    assert n.handle(on.TimePassed(), 11.0) == [do.DropPage("lease-3")]
    # The amount is kept for bob: no tenant can borrow it meanwhile.
    assert not granted(ask(n, "carol", "c", 0, 2, 12.0))
    assert granted(ask(n, "bob", "b", 0, 2, 13.0))


def test_a_share_that_went_back_is_borrowed_no_more_while_its_owner_waits_for_memory() -> None:
    n = node(alice=owns(0, 0, borrow=True), bob=owns(1, 8))
    ask(n, "alice", "a", 1, 8)
    assert n.leases.borrowing() == ({"lease-1"}, {"lease-1"})
    assert refusal(ask(n, "bob", "b", 1, 8, 1.0))[0] is Code.LENT
    assert shares(n) == {"a": 0}
    assert n.leases.borrowing() == (set(), {"lease-1"})


def test_memory_that_goes_back_frees_no_share_before_its_lease_ends() -> None:
    """The owner gets the memory back, but cannot borrow the share while the ending lease
    uses it.
    """
    n = node(
        devices=2, alice=owns(0.7, 4, borrow=True), carol=owns(0.7, 4), dave=owns(0, 0, borrow=True)
    )
    assert granted(ask(n, "carol", "c", 0.5, 1))
    assert granted(ask(n, "dave", "d", 0.2, 4))
    assert granted(ask(n, "alice", "a", 0.7, 1))
    code, text = refusal(ask(n, "alice", "a2", 0.1, 3))
    assert code is Code.TENANT_LIMIT
    assert "10% is 10% too much" in text
    assert granted(ask(n, "alice", "a2", 0, 3))


def test_what_is_not_fetched_is_lent_again() -> None:
    n = node(bob=owns(0, 8), carol=owns(0, 0, borrow=True))
    ask(n, "carol", "c", 0, 8)
    assert refusal(ask(n, "bob", "b", 0, 8, 1.0))[0] is Code.LENT
    n.handle(on.TimePassed(), 11.0)
    assert not granted(ask(n, "carol", "c2", 0, 8, 30.0))
    assert n.next_wake(30.0) == 31.0
    assert granted(ask(n, "carol", "c2", 0, 8, 31.0))


def test_an_owner_does_not_wait_where_there_is_room_beside() -> None:
    n = node(devices=2, alice=owns(0, 0, borrow=True), bob=owns(0, 6))
    ask(n, "alice", "a", 0, 6)
    assert granted(ask(n, "bob", "b", 0, 6, 1.0))
    # alice now borrows an amount that its owner uses, so she gets a notice.
    assert [lease.reclaim_at for lease in n.leases] == [11.0, None]
    n.handle(on.RevokeRequested(2, "lease-2"), 2.0)
    assert [lease.reclaim_at for lease in n.leases] == [None]


def test_borrowed_memory_may_be_left_alone() -> None:
    gentle = Policy(warm_workers=0, reclaim_memory=False, max_ttl_seconds=1e6)
    n = node(gentle, alice=owns(0, 0, borrow=True), bob=owns(0, 8))
    ask(n, "alice", "a", 0, 8)
    code, text = refusal(ask(n, "bob", "b", 0, 2, 1.0))
    assert code is Code.NO_MEMORY
    assert text.startswith("a lease of 2 GiB does not fit on device 0")


def test_the_sessions_of_a_reclaimed_lease_are_told_why() -> None:
    n = node(alice=owns(0, 0, borrow=True), bob=owns(0, 8))
    ask(n, "alice", "a", 0, 8)
    actions = n.handle(on.SessionRequested(5, "alice", "a"), 0.0)
    worker = next(a.worker for a in actions if isinstance(a, do.StartWorker))
    n.handle(on.WorkerReady(worker), 0.0)
    n.handle(on.SessionOpened(worker), 0.0)
    ask(n, "bob", "b", 0, 8, 1.0)
    ended = [a for a in n.handle(on.TimePassed(), 11.0) if isinstance(a, do.EndSession)]
    assert [a.sentence for a in ended] == [
        "lease 'a' of tenant 'alice' was reclaimed by the owner of the memory that it had borrowed"
    ]
    assert [lease.state for lease in n.leases] == [LeaseState.RECLAIMED]
    assert refusal(ask(n, "bob", "b", 0, 8, 11.5))[0] is Code.NO_MEMORY, "the worker is still there"
    n.handle(on.WorkerExited(worker, "told to"), 12.0)
    assert granted(ask(n, "bob", "b", 0, 8, 12.0))


def test_a_resize_borrows_and_reclaims_too() -> None:
    n = node(alice=owns(0.5, 4, borrow=True), bob=owns(0.5, 4))
    ask(n, "alice", "a", 0.5, 4)
    ask(n, "bob", "b", 0.1, 1)
    n.handle(on.ResizeRequested(2, "lease-1", Change(share_request_ppm=900_000)), 1.0)
    assert n.leases.borrowing()[0] == {"lease-1"}
    n.handle(on.ResizeRequested(3, "lease-2", Change(share_request_ppm=500_000)), 2.0)
    assert shares(n) == {"a": 0.0, "b": 0.5}


def test_one_can_always_ask_for_less() -> None:
    n = node(alice=owns(0.5, 4), bob=owns(0.5, 4, borrow=True))
    ask(n, "bob", "b", 0.9, 7)
    n.handle(on.ResizeRequested(3, "lease-1", Change(6 * GIB, None, 800_000)), 1.0)
    assert [h.amount for h in n.leases.holdings()] == [Amount(800_000, 6 * GIB)]
