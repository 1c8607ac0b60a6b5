"""Leases: each test states the events that go in and the actions that come out."""

from __future__ import annotations

from collections import Counter

import pytest

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.ended import MAX_REMEMBERED, EndedKeys
from rgpu_server.core.lease import Lease
from rgpu_server.core.lease_table import LeaseTable
from rgpu_server.core.model import (
    Code,
    Device,
    LeaseKey,
    LeaseState,
    PageState,
    Quota,
    Refusal,
    RefusedError,
    Wish,
)
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.quota import Holding
from rgpu_server.core.shares import Change

GIB = 1 << 30
NO_WARM = Policy(warm_workers=0)


def node(policy: Policy = NO_WARM, devices: int = 1, **tenants: TenantPolicy) -> Node:
    return Node([Device(n, "emulated", 8 * GIB, 2 * GIB) for n in range(devices)], policy, tenants)


def grant(key: str = "job", memory: int = GIB, **more: object) -> on.LeaseRequested:
    return on.LeaseRequested(1, "alice", key, Wish(memory_bytes=memory), **more)  # type: ignore[arg-type]


def sentence(actions: list[do.Action]) -> tuple[Code, str]:
    assert len(actions) == 1
    (refused,) = actions
    assert isinstance(refused, do.Refuse)
    return refused.refusal.code, refused.refusal.sentence


def test_a_grant_makes_a_page_and_answers() -> None:
    n = node()
    assert n.handle(grant(), 0.0) == [
        do.MakePage("lease-1", Quota(GIB, 0, 1_000_000)),
        do.Answer(1, "lease-1"),
    ]


def test_the_same_grant_again_keeps_the_lease_alive() -> None:
    n = node()
    n.handle(grant(), 0.0)
    assert n.handle(grant(), 20.0) == [do.Answer(1, "lease-1")]
    assert n.next_wake(20.0) == 50.0


def test_a_grant_with_other_sizes_is_refused_and_says_both() -> None:
    n = node()
    n.handle(grant(), 0.0)
    assert sentence(n.handle(grant(memory=2 * GIB), 1.0)) == (
        Code.LEASE_EXISTS,
        "lease 'job' of tenant 'alice' exists on device 0 with 1 GiB, share 0%, limit 100%, "
        "asked for are 2 GiB, share 0%, limit 100%; resize it or use another lease key",
    )


def test_a_grant_without_a_key_gets_a_fresh_one() -> None:
    n = node()
    n.handle(grant(key=""), 0.0)
    n.handle(grant(key=""), 0.0)
    assert sorted(lease.key.name for lease in n.leases) == ["granted-1", "granted-2"]


def test_granted_leases_are_bounded_in_all_and_of_a_tenant() -> None:
    n = node(Policy(warm_workers=0, max_leases=2), bob=TenantPolicy(leases=1))
    one = Wish(memory_bytes=1)
    n.handle(on.LeaseRequested(1, "bob", "a", one), 0.0)
    assert sentence(n.handle(on.LeaseRequested(2, "bob", "b", one), 0.0)) == (
        Code.TENANT_LIMIT,
        "tenant 'bob' has all of its granted leases (1 of 1); revoke one or ask the operator for "
        "more",
    )
    n.handle(grant("a", 1), 0.0)
    code, text = sentence(n.handle(grant("b", 1), 0.0))
    assert code is Code.SERVER_FULL
    assert "as many as it may (leases.max); revoke one" in text
    # Existing leases can be kept alive, sessions can join, and an ended lease makes room.
    assert n.handle(grant("a", 1), 1.0) == [do.Answer(1, "lease-2")]
    actions = n.handle(on.SessionRequested(7, "alice", "c"), 1.0)
    assert not [x for x in actions if isinstance(x, do.RefuseSession)]
    # A lease that came with a session does not become a granted one too many.
    assert sentence(n.handle(grant("c", 2 * GIB), 1.0))[0] is Code.SERVER_FULL
    n.handle(on.RevokeRequested(3, "lease-2"), 2.0)
    assert n.handle(grant("b", 1), 2.0)[-1] == do.Answer(1, "lease-4")


def granted(actions: list[do.Action]) -> bool:
    return isinstance(actions[-1], do.Answer)


def takes_all(n: Node, *tenants: str) -> Counter[str]:
    """Has the tenants take turns to be granted leases, for as long as one of them gets one."""
    has = Counter[str]()
    while True:
        asks = [on.LeaseRequested(1, x, f"{x}-{has[x]}", Wish(memory_bytes=1)) for x in tenants]
        got = [ask.tenant for ask in asks if granted(n.handle(ask, 0.0))]
        if not got:
            return has
        has.update(got)


def test_a_tenant_leaves_as_many_granted_leases_as_it_has() -> None:
    n = node(Policy(warm_workers=0, max_leases=8))
    assert takes_all(n, "alice") == {"alice": 4}
    assert sentence(n.handle(grant("more", 1), 0.0)) == (
        Code.TENANT_LIMIT,
        "tenant 'alice' has 4 of 8 granted leases, and the 4 that are free are left for other "
        "tenants; revoke one, or ask the operator for more (leases in the tenant's table)",
    )
    # She gets another one for one of hers, and keeps what she has where others take the rest.
    n.handle(on.RevokeRequested(2, "lease-1"), 1.0)
    assert granted(n.handle(grant("more", 1), 1.0))
    assert takes_all(n, "bob", "carol") == {"bob": 2, "carol": 1}
    assert granted(n.handle(grant("more", 1), 2.0))
    assert sum(lease.key.tenant == "alice" for lease in n.leases) == 4


@pytest.mark.parametrize("many", [1, 2, 5, 11])
def test_tenants_that_act_together_leave_a_granted_lease_for_another_one(many: int) -> None:
    n = node(Policy(warm_workers=0, max_leases=12))
    together = [f"t{number}" for number in range(many)]
    has = takes_all(n, *together)
    assert set(has) == set(together)
    assert granted(n.handle(grant("mine", 1), 0.0))


def test_an_operator_may_grant_all_leases_and_give_a_tenant_as_many() -> None:
    n = node(Policy(warm_workers=0, max_leases=4), bob=TenantPolicy(leases=4))
    for number in range(4):
        assert granted(n.handle(grant(f"k{number}", 1, operator=True), 0.0))
    assert sentence(n.handle(grant("more", 1, operator=True), 0.0))[0] is Code.SERVER_FULL
    for lease in list(n.leases):
        n.handle(on.RevokeRequested(2, lease.id), 1.0)
    assert takes_all(n, "bob") == {"bob": 4}


def test_keep_alive_moves_the_end_and_silence_ends_the_lease() -> None:
    n = node()
    n.handle(grant(), 0.0)
    assert n.handle(on.KeepAliveRequested(2, "lease-1"), 29.0) == [do.Answer(2, "lease-1")]
    assert n.handle(on.TimePassed(), 58.0) == []
    assert n.handle(on.TimePassed(), 59.0) == [do.DropPage("lease-1")]
    code, text = sentence(n.handle(on.KeepAliveRequested(3, "lease-1"), 60.0))
    assert code is Code.LEASE_UNKNOWN
    assert "may have expired" in text


def test_an_expired_lease_is_refused_by_name_to_a_session_until_it_is_forgotten() -> None:
    n = node(Policy(warm_workers=0, memory_seconds=100.0))
    n.handle(grant(), 0.0)
    n.handle(on.TimePassed(), 30.0)
    (refused, *_) = n.handle(on.SessionRequested(7, "alice", "job"), 40.0)
    assert refused == do.RefuseSession(
        7,
        Refusal(
            Code.LEASE_ENDED,
            "lease 'job' of tenant 'alice' has expired, 10 s ago; "
            "ask for a new grant or use another lease key",
        ),
    )
    assert isinstance(n.handle(on.SessionRequested(8, "alice", "job"), 130.0)[0], do.MakePage)


def test_a_new_grant_of_an_expired_key_is_welcome() -> None:
    n = node()
    n.handle(grant(), 0.0)
    n.handle(on.TimePassed(), 30.0)
    assert n.handle(grant(), 31.0)[-1] == do.Answer(1, "lease-2")


def test_too_much_memory_is_refused_with_the_amount() -> None:
    n = node()
    n.handle(grant(memory=6 * GIB), 0.0)
    assert sentence(n.handle(grant("other", 3 * GIB), 0.0)) == (
        Code.NO_MEMORY,
        "a lease of 3 GiB does not fit on device 0: 2 GiB of its 8 GiB are free, 1 GiB too little; "
        "ask for less memory or wait until a lease ends",
    )


@pytest.mark.parametrize(("devices", "offered"), [(1, "only device 0"), (3, "devices 0 to 2")])
def test_a_device_that_is_not_there(devices: int, offered: str) -> None:
    n = node(devices=devices)
    event = on.LeaseRequested(1, "alice", "job", Wish(device=9))
    assert sentence(n.handle(event, 0.0)) == (
        Code.NO_SUCH_DEVICE,
        f"there is no device 9: this server offers {offered}",
    )


def test_leases_go_to_the_device_with_most_free_memory() -> None:
    n = node(devices=2)
    for key in ("a", "b", "c"):
        n.handle(grant(key), 0.0)
    assert [lease.device for lease in n.leases] == [0, 1, 0]


def test_resize_writes_the_page_and_refuses_what_does_not_fit() -> None:
    n = node()
    n.handle(grant(), 0.0)
    n.handle(grant("other", 5 * GIB), 0.0)
    assert n.handle(on.ResizeRequested(2, "lease-1", Change(3 * GIB)), 1.0) == [
        do.UpdatePage("lease-1", Quota(3 * GIB, 0, 1_000_000), PageState.ACTIVE),
        do.Answer(2, "lease-1"),
    ]
    assert sentence(n.handle(on.ResizeRequested(3, "lease-1", Change(4 * GIB)), 1.0)) == (
        Code.NO_MEMORY,
        "a lease of 4 GiB does not fit on device 0: 3 GiB of its 8 GiB are free, "
        "1 GiB too little; ask for less memory or wait until a lease ends",
    )


def test_to_resize_a_lease_takes_no_look_at_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before: each resize made a list of what all leases hold, and looked through it: 4 ms among
    1,000.
    """
    n = node(devices=2, alice=TenantPolicy(), bob=TenantPolicy(memory_bytes=4 * GIB))
    for key in "abc":
        n.handle(grant(key), 0.0)
    n.handle(on.LeaseRequested(1, "bob", "d", Wish(memory_bytes=GIB)), 0.0)
    looks = []
    holdings = LeaseTable.holdings

    def looked(table: LeaseTable, without: Lease | None = None) -> list[Holding]:
        looks.append(without)
        return holdings(table, without)

    monkeypatch.setattr(LeaseTable, "holdings", looked)

    def resized(lease: str, memory: int) -> do.Action:
        return n.handle(on.ResizeRequested(2, lease, Change(memory)), 1.0)[-1]

    for memory in (2 * GIB, GIB, 3 * GIB, 5 * GIB):
        assert resized("lease-1", memory) == do.Answer(2, "lease-1", 0)
    assert resized("lease-4", GIB // 2) == do.Answer(2, "lease-4", 0)
    assert looks == []
    # Where there is not enough room, and where a tenant has a bound, they count one by one.
    assert isinstance(resized("lease-1", 8 * GIB), do.Refuse)
    assert resized("lease-4", 2 * GIB) == do.Answer(2, "lease-4", 0)
    assert len(looks) == 2


def test_a_resized_lease_holds_no_more_than_it_had() -> None:
    n = node()
    n.handle(grant(memory=4 * GIB), 0.0)
    n.handle(on.ResizeRequested(2, "lease-1", Change(1 * GIB), {7: 1 << 63}), 1.0)
    (lease,) = n.leases
    assert lease.held_bytes == 4 * GIB
    n.handle(on.ResizeRequested(3, "lease-1", Change(2 * GIB), {7: 1 << 63}), 2.0)
    assert lease.held_bytes == 4 * GIB


@pytest.mark.parametrize(
    ("sizes", "text"),
    [
        ({"memory_bytes": 0}, "a lease needs more than 0 bytes of memory"),
        (
            {"share_request_ppm": 500_000, "share_limit_ppm": 400_000},
            "the share 50% is above its limit 40%; raise the limit or ask for a smaller share",
        ),
        ({"share_request_ppm": 1_000_001}, "a share is a fraction of one device, from 0 to 1"),
    ],
)
def test_sizes_that_make_no_sense(sizes: dict[str, int], text: str) -> None:
    n = node()
    n.handle(grant(), 0.0)
    event = on.ResizeRequested(2, "lease-1", Change(**sizes))
    assert sentence(n.handle(event, 0.0)) == (Code.BAD_REQUEST, text)


def test_revoking_ends_an_empty_lease_at_once() -> None:
    n = node()
    n.handle(grant(), 0.0)
    assert n.handle(on.RevokeRequested(2, "lease-1"), 1.0) == [
        do.DropPage("lease-1"),
        do.Answer(2, "lease-1", 0),
    ]


def test_shares_are_recorded_in_the_quota() -> None:
    n = node()
    wish = Wish(memory_bytes=GIB, share_request_ppm=400_000, share_limit_ppm=700_000)
    n.handle(on.LeaseRequested(1, "alice", "job", wish), 0.0)
    assert [lease.quota for lease in n.leases] == [Quota(GIB, 400_000, 700_000)]


def test_a_tenant_may_not_lease_more_than_its_ceiling() -> None:
    n = node(alice=TenantPolicy(memory_bytes=3 * GIB))
    n.handle(grant(memory=2 * GIB), 0.0)
    code, text = sentence(n.handle(grant("other", 2 * GIB), 0.0))
    assert code is Code.TENANT_LIMIT
    assert "may lease 3 GiB, and 1 GiB of it is free: 1 GiB too little for 2 GiB more" in text


def test_a_ceiling_for_everybody_else_is_written_with_a_star() -> None:
    n = Node(
        [Device(0, "emulated", 8 * GIB, GIB)],
        NO_WARM,
        {"*": TenantPolicy(memory_bytes=GIB), "alice": TenantPolicy()},
    )
    assert n.handle(grant(memory=4 * GIB), 0.0)[-1] == do.Answer(1, "lease-1")
    event = on.LeaseRequested(2, "bob", "job", Wish(memory_bytes=2 * GIB))
    assert sentence(n.handle(event, 0.0))[0] is Code.TENANT_LIMIT


@pytest.mark.parametrize("seconds", [-1.0, 90000.0])
def test_a_life_that_is_too_long_or_negative(seconds: float) -> None:
    code, text = sentence(node().handle(grant(ttl_seconds=seconds), 0.0))
    assert code is Code.BAD_REQUEST
    assert "at most 86400 s" in text


def test_a_tenant_has_no_ended_key_of_another_forgotten() -> None:
    """Else a program of bob whose lease was revoked would go on in a lease of another size."""
    keys = EndedKeys(Policy(memory_seconds=3600.0))
    keys.add(LeaseKey("bob", "job"), LeaseState.REVOKED, 0.0)
    for number in range(2 * MAX_REMEMBERED):
        keys.add(LeaseKey("alice", f"job-{number}"), LeaseState.REVOKED, 1.0)
    with pytest.raises(RefusedError, match="2 s ago"):
        keys.check(LeaseKey("bob", "job"), 2.0)
    with pytest.raises(RefusedError):
        keys.check(LeaseKey("alice", f"job-{2 * MAX_REMEMBERED - 1}"), 2.0)
    keys.check(LeaseKey("alice", "job-0"), 2.0)
