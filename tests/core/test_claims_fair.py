"""What the claims of one tenant may not take from others: their quota, places, processor time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from core.claim_desk import GIB, POLICY, claim, granted, node, places, refusal, session
from msgspec.structs import replace

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.claiming import Claiming
from rgpu_server.core.model import Amount, Code, LeaseKey, Refusal, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change

OWNS = TenantPolicy(quota={"model": Amount(1_000_000, 4 * GIB)})


def grant(key: str, gib: int, tenant: str, **more: bool) -> on.LeaseRequested:
    return on.LeaseRequested(1, tenant, key, Wish(memory_bytes=gib * GIB), **more)


def answered(actions: list[do.Action]) -> Code | None:
    """Returns the code of a refused grant; None if it was granted."""
    (answer,) = [a for a in actions if isinstance(a, do.Answer | do.Refuse)]
    return answer.refusal.code if isinstance(answer, do.Refuse) else None


# The bar of a waiting claim


def barred(**tenants: TenantPolicy) -> Node:
    """A stranger's claim waits for the whole device, of which 2 GiB are taken."""
    n = node(POLICY, **tenants)
    n.handle(claim(1, 2, "stranger"), 0.0)
    assert places(n.handle(claim(2, 8, "stranger", wait=600), 1.0)) == {2: (1, 1)}
    return n


def test_what_a_tenant_owns_is_not_kept_from_it() -> None:
    """Before: a stranger's claim kept an owner from its own part for a minute."""
    n = barred(owner=OWNS)
    assert granted(n.handle(claim(3, 2, "owner"), 2.0)) == [3]
    assert do.MakePage in map(type, n.handle(session(4, "x", 1, "owner"), 2.0))
    assert answered(n.handle(grant("y", 1, "owner"), 2.0)) is None
    # A tenant that owns nothing here is kept out.
    assert refusal(n.handle(claim(5, 1, "bob"), 2.0)).code is Code.IN_LINE


def test_what_an_owner_would_borrow_is_kept_for_those_in_line() -> None:
    lends = TenantPolicy(quota={"model": Amount(0, 2 * GIB)})
    borrows = TenantPolicy(quota={"model": Amount(0, 2 * GIB)}, borrow=True)
    n = barred(lender=lends, owner=borrows)
    assert refusal(n.handle(claim(3, 3, "owner"), 2.0)).code is Code.IN_LINE
    assert granted(n.handle(claim(4, 2, "owner"), 2.0)) == [4]
    assert refusal(n.handle(claim(5, 1, "owner"), 2.0)).code is Code.IN_LINE


def test_an_owner_in_line_is_served_before_a_stranger_that_does_not_fit() -> None:
    n = node(POLICY, owner=OWNS)
    n.handle(claim(1, 6, "bob"), 0.0)
    n.handle(claim(2, 8, "stranger", wait=600), 1.0)
    n.handle(claim(3, 4, "owner", wait=600), 2.0)
    assert granted(n.handle(on.ClaimLeft(1), 3.0)) == [2]
    n.handle(claim(4, 8, "stranger", wait=600), 4.0)
    n.handle(claim(5, 1, "carol", wait=600), 4.0)
    assert granted(n.handle(on.ClaimLeft(2), 5.0)) == [3]


def test_an_owner_waits_behind_its_own_claims() -> None:
    n = node(POLICY, owner=OWNS)
    n.handle(claim(1, 6, "stranger"), 0.0)
    n.handle(claim(2, 4, "owner", wait=600), 1.0)
    assert refusal(n.handle(claim(3, 1, "owner"), 2.0)).code is Code.IN_LINE


def test_the_operator_grants_what_others_wait_for() -> None:
    """Before: `rgpu lease grant` was refused for as long as somebody waited."""
    n = barred()
    assert answered(n.handle(grant("mine", 2, "bob"), 2.0)) is Code.IN_LINE
    assert answered(n.handle(grant("mine", 2, "bob", passes_line=True), 2.0)) is None


# Places for sessions


def test_runs_without_a_session_do_not_take_the_places_of_others() -> None:
    """Before: two tenants with 128 claims each filled a server in which no session ran."""
    n = node(Policy(warm_workers=0, max_sessions=16, open_seconds=1e6))
    for number in range(1, 17):
        tenant = f"mallory-{number % 2}"
        assert granted(n.handle(claim(number, 0, tenant, memory_ppm=1), 0.0)) == [number]
    # A quarter of the places is kept for them, for a minute.
    for number in range(100, 112):
        n.handle(session(number, "one", 2, f"tenant-{number % 2}"), 1.0)
    assert len(n.sessions) == 12
    assert places(n.handle(claim(112, 0, "bob", wait=600, memory_ppm=1), 2.0)) == {112: (1, 1)}
    assert n.next_wake(20.0) == 60.0
    assert granted(n.handle(on.TimePassed(), 60.0)) == [112]
    n.handle(session(113, "run-112", 0, "bob"), 61.0)
    assert len(n.sessions) == 13


def test_whoever_has_most_places_kept_loses_one_first() -> None:
    n = node(Policy(warm_workers=0, max_sessions=16))
    for number in range(1, 8):
        n.handle(claim(number, 1, "mallory"), 0.0)
    n.handle(claim(8, 1, "alice"), 1.0)
    kept = n.kept
    assert LeaseKey("alice", "run-8") in kept
    assert len(kept) == 4
    n.handle(session(9, "run-8"), 2.0)
    assert n.sessions.get(9) is not None
    assert len(kept) == 3


def test_a_run_keeps_its_place_from_one_process_to_the_next() -> None:
    policy = Policy(warm_workers=0, max_sessions=4, tenant_sessions=4)
    n = node(policy)
    n.handle(claim(1, 1), 0.0)
    n.handle(session(2, "run-1"), 100.0)
    for number in (3, 4, 5):
        n.handle(session(number, f"s{number}", 1, "bob"), 100.0)
    n.handle(on.ClientLeft(2), 101.0)
    assert refusal(n.handle(session(6, "other", 1, "carol"), 102.0)).code is Code.SERVER_FULL
    n.handle(session(7, "run-1"), 103.0)
    assert n.sessions.get(7) is not None


def test_a_run_that_has_ended_keeps_no_place() -> None:
    n = node(Policy(warm_workers=0, max_sessions=1))
    n.handle(claim(1, 1), 0.0)
    assert places(n.handle(claim(2, 1, "bob", wait=60), 1.0)) == {2: (1, 1)}
    assert granted(n.handle(on.ClaimLeft(1), 2.0)) == [2]
    n.handle(claim(3, 1, "carol", wait=60), 3.0)
    assert granted(n.handle(on.RevokeRequested(9, "lease-2"), 4.0)) == [3]
    n.handle(on.ClaimLeft(2), 5.0)
    assert len(n.kept) == 1


# How many wait


def test_claims_that_settle_count_as_waiting() -> None:
    """Before: nothing bounded them."""
    n = node()  # of one tenant three claims wait
    n.handle(claim(1, 2, key="shared"), 0.0)
    for number in (2, 3, 4):
        assert n.handle(claim(number, 1, key="shared"), 0.5) == []
    refused = refusal(n.handle(claim(5, 1, key="shared"), 0.5))
    assert refused.code is Code.SERVER_FULL
    assert "3 claims of tenant 'alice' wait" in refused.sentence
    n.handle(on.ClaimLeft(4), 0.6)
    assert n.handle(claim(6, 1, key="shared"), 0.7) == []


def test_whoever_shows_a_credential_is_bounded_by_its_tenant_and_not_by_its_address() -> None:
    n = node(Policy(warm_workers=0, max_waiting=(99, 3, 2)))
    n.handle(claim(1, 8), 0.0)
    for number in range(2, 8):
        event = claim(number, 1, f"tenant-{number}", wait=60, proved=True)
        assert places(n.handle(event, 1.0)) == {number: (number - 1, number - 1)}
    for number in (8, 9):
        assert places(n.handle(claim(number, 1, f"tenant-{number}", wait=60), 1.0))
    refused = refusal(n.handle(claim(10, 1, "tenant-10", wait=60), 1.0))
    assert "2 claims from this address wait" in refused.sentence


def test_tenants_that_fill_the_line_together_make_room_for_another() -> None:
    """Before: so many colluding tenants that their bounds fill the line kept all others out."""
    n = node(Policy(warm_workers=0, max_waiting=(6, 3, 9)))
    n.handle(claim(1, 8), 0.0)
    for number in range(2, 8):
        n.handle(claim(number, 1, "eve" if number % 2 else "mallory", wait=60, proved=True), 1.0)
    said = n.handle(claim(8, 1, "bob", wait=60, proved=True), 1.0)
    assert places(said)[8][1] == 6
    (left,) = [action for action in said if isinstance(action, do.RefuseClaim)]
    assert left.claim in (6, 7)
    assert "made room for another client's" in left.refusal.sentence
    # Whoever has as many as others pushes out nobody.
    assert places(n.handle(claim(9, 1, "bob", wait=60, proved=True), 1.0))
    refused = refusal(n.handle(claim(10, 1, "bob", wait=60, proved=True), 1.0))
    assert "6 claims wait in line" in refused.sentence


def test_one_address_with_many_tenants_names_pushes_out_nobody() -> None:
    n = node(Policy(warm_workers=0, max_waiting=(6, 3, 3), max_tenants=99))
    n.handle(claim(1, 8), 0.0)
    for number in range(2, 8):
        where = "here" if number % 2 else "there"
        n.handle(claim(number, 1, f"t{number}", wait=60, address=where), 1.0)
    said = n.handle(claim(8, 1, "bob", wait=60, address="elsewhere"), 1.0)
    assert 8 in places(said)
    assert isinstance(refusal(n.handle(claim(9, 1, "t9", wait=60), 1.0)), Refusal)


def test_a_claim_that_settles_makes_room_as_one_in_line_does() -> None:
    n = node(Policy(warm_workers=0, max_waiting=(2, 2, 9)))
    n.handle(claim(1, 2, "eve", key="shared", proved=True), 0.0)
    for number in (2, 3):
        assert n.handle(claim(number, 1, "eve", key="shared", proved=True), 0.5) == []
    n.handle(claim(4, 6, "bob", proved=True), 0.5)
    said = n.handle(claim(5, 1, "bob", wait=60, proved=True), 0.6)
    assert [a.claim for a in said if isinstance(a, do.RefuseClaim)] == [3]
    assert 5 in places(said)
    assert refusal(n.handle(on.TimePassed(), 99.0)) is not None


def test_an_operators_claim_has_room_among_as_many_tenants_as_places() -> None:
    n = node(Policy(warm_workers=0, max_waiting=(4, 3, 9)))
    n.handle(claim(1, 8), 0.0)
    for number in range(2, 6):
        assert places(n.handle(claim(number, 1, f"t{number}", wait=60, proved=True), 1.0))
    refused = refusal(n.handle(claim(6, 1, "bob", wait=60, proved=True), 1.0))
    assert "4 claims wait in line" in refused.sentence
    mine = replace(claim(7, 1, "ops", wait=60, proved=True), operator=True)
    assert 7 in places(n.handle(mine, 1.0))


# The cost of an event


def test_claims_in_line_are_tried_again_only_when_that_may_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before: each event, a refused one too, tried all of them."""
    n = node(Policy(warm_workers=0, max_tenants=99))
    n.handle(claim(1, 8), 0.0)
    n.handle(claim(2, 1, "bob", key="bob"), 0.0)
    for number in range(3, 30):
        n.handle(claim(number, 1, f"t{number}", wait=600), 1.0)
    tried = []
    ask: Callable[..., None] = Claiming._grant

    def counted(self: Claiming, event: on.ClaimRequested, now: float) -> None:
        tried.append(event.claim)
        ask(self, event, now)

    monkeypatch.setattr(Claiming, "_grant", counted)
    for event in (
        session(50, "x", 1, "eve"),
        grant("x", 1, "eve"),
        on.KeepAliveRequested(1, "lease-9"),
        on.ResizeRequested(1, "lease-9", Change()),
        on.TimePassed(),
    ):
        n.handle(event, 2.0)
    assert tried == []
    # A claim that barred no other leaves.
    n.handle(on.ClaimLeft(20), 3.0)
    assert tried == []
    n.handle(on.ClaimLeft(3), 3.0)
    assert len(tried) == 25
    tried.clear()
    assert len(granted(n.handle(on.ClaimLeft(1), 4.0))) == 8


def test_a_claim_in_line_hears_that_the_lease_that_it_joins_is_there() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    n.handle(claim(2, 4, "bob", key="shared", wait=60), 1.0)
    n.handle(on.ResizeRequested(9, "lease-1", Change(memory_bytes=4 * GIB)), 2.0)
    assert [lease.key.name for lease in n.leases] == ["run-1", "shared"]


def test_places_are_right_for_lines_that_cross() -> None:
    n = node(Policy(warm_workers=0), devices=2)
    n.handle(claim(1, 8, "x", device=0), 0.0)
    n.handle(claim(2, 8, "x", device=1), 0.0)
    told = {}
    for number, tenant, wish in (
        (3, "a", {"device": 0}),
        (4, "b", {"device": 1}),
        (5, "b", {"device": 0}),
        (6, "c", {}),
        (7, "d", {"device": 1}),
    ):
        told |= places(n.handle(claim(number, 8, tenant, wait=60, **wish), 1.0))
    assert told == {3: (1, 1), 4: (1, 1), 5: (3, 3), 6: (4, 4), 7: (3, 3)}
    # Claim 5 waits for device 0 behind claim 3, and behind claim 4 of its own tenant.
    assert places(n.handle(on.ClaimLeft(3), 2.0)) == {5: (2, 3), 6: (3, 4)}


# Requests for which waiting does not help


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_a_claim_larger_than_the_device_hears_what_the_device_has(wait: float) -> None:
    n = node()
    n.handle(claim(1, 6), 0.0)
    n.handle(claim(2, 8, "bob", wait=60), 0.5)  # no advice to wait behind this one
    assert refusal(n.handle(claim(3, 100, wait=wait), 1.0)).sentence == (
        "a lease of 100 GiB does not fit on device 0, which has 8 GiB in all, so waiting does "
        "not help; ask for less memory"
    )


def test_a_claim_larger_than_every_device_hears_of_the_largest() -> None:
    sentence = refusal(node(devices=2).handle(claim(1, 100, wait=60), 1.0)).sentence
    assert "fits on no device: the largest, device 0, has 8 GiB in all" in sentence


@pytest.mark.parametrize("wait", [0.0, 60.0])
@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (TenantPolicy(memory_bytes=4 * GIB), "tenant 'bob' may lease 4 GiB in all, and 5 GiB was"),
        (OWNS, "tenant 'bob' may hold at most 4 GiB of 'model', and 5 GiB was asked for"),
        (
            TenantPolicy(quota=OWNS.quota, borrow=True, borrow_memory_bytes=GIB // 2),
            "tenant 'bob' may hold at most 4 GiB of 'model', and 5 GiB was asked for",
        ),
    ],
)
def test_a_second_claim_beyond_the_quota_hears_that_no_wait_helps(
    policy: TenantPolicy, sentence: str, wait: float
) -> None:
    """A regression: the refusal said how much would be free at the time, or advised to wait."""
    n = node(POLICY, bob=policy)
    n.handle(claim(1, 3, "bob"), 0.0)
    said = refusal(n.handle(claim(2, 5, "bob", wait=wait), 1.0)).sentence
    assert said.startswith(sentence)
    assert "so waiting does not help; ask for less, or ask the operator for more" in said
