"""Claims of runs: leases of their own, joining another lease, and the line of claims that wait."""

from __future__ import annotations

import pytest
from core.claim_desk import GIB, POLICY, claim, granted, node, places, refusal, session
from msgspec.structs import replace

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Amount, Code, PageState, Quota
from rgpu_server.core.policy import Policy, TenantPolicy


def test_a_claim_makes_a_lease_that_lives_without_a_session() -> None:
    n = node()
    assert n.handle(claim(1), 0.0) == [
        do.MakePage("lease-1", Quota(2 * GIB)),
        do.GrantClaim(1, "lease-1"),
    ]
    assert n.next_wake(0.0) is None
    assert n.handle(on.TimePassed(), 1000.0) == []
    assert n.handle(on.ClaimLeft(1), 1001.0) == [do.DropPage("lease-1")]
    assert list(n.leases) == []


def test_an_own_lease_ends_with_the_last_session_of_its_run_and_without_grace() -> None:
    n = node()
    n.handle(claim(1), 0.0)
    n.handle(session(2, "run-1", 2), 1.0)
    n.handle(on.ClientLeft(2), 2.0)
    assert [lease.id for lease in n.leases] == ["lease-1"]  # the run may open another session
    n.handle(session(3, "run-1", 2), 3.0)
    assert n.handle(on.ClaimLeft(1), 4.0) == []
    assert do.DropPage("lease-1") in n.handle(on.ClientLeft(3), 5.0)
    assert list(n.leases) == []


def test_two_runs_have_a_lease_each_whatever_they_ask_for() -> None:
    n = node()
    n.handle(claim(1, 2), 0.0)
    n.handle(claim(2, 1), 0.0)
    assert [lease.quota.memory_bytes for lease in n.leases] == [2 * GIB, GIB]


@pytest.mark.parametrize("gib", [1, 3])
def test_a_run_that_joins_a_lease_in_use_with_other_numbers_is_refused(gib: int) -> None:
    n = node()
    n.handle(claim(1, 2, key="shared"), 0.0)
    assert n.handle(claim(2, gib, key="shared"), 1.0) == []  # the first one may be ending
    refused = refusal(n.handle(on.TimePassed(), 2.0))
    assert refused.code is Code.LEASE_TOO_SMALL
    assert f"has a memory of 2 GiB and {gib} GiB was asked for: it is in use" in refused.sentence


def test_a_run_that_joins_a_lease_that_nobody_uses_gives_it_its_numbers() -> None:
    n = node()
    n.handle(claim(1, 2, key="shared"), 0.0)
    n.handle(claim(2, 1, key="shared"), 1.0)
    assert n.handle(on.ClaimLeft(1), 1.5) == [
        do.UpdatePage("lease-1", Quota(GIB), PageState.ACTIVE),
        do.GrantClaim(2, "lease-1"),
    ]


def test_a_run_that_joins_without_numbers_or_with_the_same_is_welcome() -> None:
    n = node()
    n.handle(claim(1, 2, key="shared"), 0.0)
    assert granted(n.handle(claim(2, 0, key="shared"), 1.0)) == [2]
    assert granted(n.handle(claim(3, 2, key="shared"), 1.0)) == [3]
    n.handle(on.ClaimLeft(1), 2.0)
    n.handle(on.ClaimLeft(2), 2.0)
    n.handle(on.ClaimLeft(3), 2.0)
    assert n.next_wake(2.0) == 7.0  # a named lease has its grace


def test_a_revoked_lease_lets_its_claims_go() -> None:
    n = node()
    n.handle(claim(1), 0.0)
    n.handle(on.RevokeRequested(9, "lease-1"), 1.0)
    assert n.handle(on.ClaimLeft(1), 2.0) == []
    assert refusal(n.handle(session(2, "run-1"), 3.0)).code is Code.LEASE_ENDED


def test_a_claim_that_does_not_fit_and_does_not_wait_is_refused_at_once() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    assert refusal(n.handle(claim(2, 1), 0.0)).code is Code.NO_MEMORY
    assert list(n.line) == []


def test_claims_that_wait_are_served_in_order_and_hear_their_place() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    assert places(n.handle(claim(2, 6, wait=60), 1.0)) == {2: (1, 1)}
    assert places(n.handle(claim(3, 1, "bob", wait=60), 2.0)) == {3: (2, 2)}
    actions = n.handle(on.ClaimLeft(1), 3.0)
    assert granted(actions) == [2, 3]
    assert n.next_wake(3.0) is None


def test_a_small_claim_does_not_overtake_a_large_one() -> None:
    n = node()
    n.handle(claim(1, 6), 0.0)
    n.handle(claim(2, 8, wait=60), 1.0)
    assert places(n.handle(claim(3, 1, "bob", wait=60), 2.0)) == {3: (2, 2)}
    # A claim that does not wait is refused too, and so is a session without a claim.
    for event in (claim(4, 1, "carol"), session(5, "x", 1, "carol")):
        refused = refusal(n.handle(event, 2.0))
        assert refused.code is Code.IN_LINE
        assert "`rgpu run --wait` waits behind them" in refused.sentence
    assert granted(n.handle(on.ClaimLeft(1), 3.0)) == [2]


def test_who_waits_for_a_share_keeps_back_nobody_who_asks_for_none() -> None:
    n = node()
    n.handle(claim(1, 1, share_request_ppm=800_000), 0.0)
    n.handle(claim(2, 1, wait=60, share_request_ppm=500_000), 1.0)
    assert granted(n.handle(claim(3, 1, "bob"), 2.0)) == [3]
    assert refusal(n.handle(claim(4, 1, share_request_ppm=100_000), 2.0)).code is Code.IN_LINE
    assert granted(n.handle(on.ClaimLeft(1), 3.0)) == [2]


def test_a_claim_waits_for_its_own_device_only() -> None:
    n = node(devices=2)
    n.handle(claim(1, 8, device=0), 0.0)
    n.handle(claim(2, 8, wait=60, device=0), 1.0)
    assert granted(n.handle(claim(3, 8, "bob", wait=60, device=1), 1.0)) == [3]
    assert places(n.handle(claim(4, 1, "carol", wait=60, device=1), 1.0)) == {4: (1, 1)}
    assert places(n.handle(claim(5, 1, "dave", wait=60), 1.0)) == {5: (3, 3)}
    assert granted(n.handle(on.ClaimLeft(3), 2.0)) == [4, 5]


def test_who_leaves_the_line_makes_the_others_move_up() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    n.handle(claim(2, 8, wait=60), 1.0)
    n.handle(claim(3, 8, "bob", wait=60), 1.0)
    assert places(n.handle(on.ClaimLeft(2), 2.0)) == {3: (1, 1)}
    n.handle(on.ClaimLeft(3), 2.5)
    assert refusal(n.handle(claim(4, 1), 3.0)).code is Code.NO_MEMORY  # no bar is left


def test_a_claim_that_has_waited_long_enough_is_told_for_what() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    n.handle(claim(2, 1, wait=30), 1.0)
    assert n.next_wake(1.0) == 31.0
    refused = refusal(n.handle(on.TimePassed(), 31.0))
    assert refused.code is Code.NO_MEMORY
    assert refused.sentence.endswith("(waited for 30.0 s)")
    assert refusal(n.handle(claim(3, 1), 32.0)).code is Code.NO_MEMORY


def test_what_can_never_fit_is_refused_at_once() -> None:
    quota = {"model": Amount(1_000_000, 4 * GIB)}
    n = node(
        POLICY, bob=TenantPolicy(memory_bytes=3 * GIB), carol=TenantPolicy(sessions=0),
        dave=TenantPolicy(quota=quota),
    )  # fmt: skip
    n.handle(claim(1, 8), 0.0)
    for event, code in (
        (claim(2, 9, wait=60), Code.NO_MEMORY),
        (claim(3, 4, "bob", wait=60), Code.TENANT_LIMIT),
        (claim(4, 1, "carol", wait=60), Code.TENANT_LIMIT),
        (claim(5, 5, "dave", wait=60), Code.TENANT_LIMIT),
        (claim(6, 1, wait=60, device=3), Code.NO_SUCH_DEVICE),
    ):
        assert refusal(n.handle(event, 1.0)).code is code
    assert list(n.line) == []


def test_a_tenant_at_its_own_ceiling_keeps_nobody_else_back() -> None:
    n = node(POLICY, alice=TenantPolicy(memory_bytes=4 * GIB))
    n.handle(claim(1, 4), 0.0)
    assert places(n.handle(claim(2, 2, wait=60), 1.0)) == {2: (1, 1)}
    assert granted(n.handle(claim(3, 4, "bob"), 1.0)) == [3]
    # Later claims of the same tenant stay behind the earlier one.
    n.handle(claim(4, 1, wait=60), 2.0)
    assert granted(n.handle(on.ClaimLeft(1), 3.0)) == [2, 4]


def test_a_claim_bars_others_for_a_minute_only() -> None:
    """A regression: one claim that could never be granted kept a device from all tenants
    for a day.
    """
    n = node()
    n.handle(claim(1, 1, "mallory"), 0.0)
    assert places(n.handle(claim(2, 8, "mallory", wait=86400), 1.0)) == {2: (1, 1)}
    assert refusal(n.handle(claim(3, 1, "bob"), 2.0)).code is Code.IN_LINE
    assert places(n.handle(claim(4, 1, "bob", wait=600), 3.0)) == {4: (2, 2)}
    assert n.next_wake(3.0) == 61.0
    assert granted(n.handle(on.TimePassed(), 61.0)) == [4]
    assert granted(n.handle(claim(5, 1, "carol"), 62.0)) == [5]
    # The claim still bars its own tenant.
    assert refusal(n.handle(claim(6, 1, "mallory"), 63.0)).code is Code.IN_LINE
    # To leave and come again begins no new turn, until ten turns later.
    n.handle(on.ClaimLeft(2), 70.0)
    n.handle(claim(7, 8, "mallory", wait=86400), 71.0)
    assert granted(n.handle(claim(8, 1, "dave"), 72.0)) == [8]
    n.handle(on.ClaimLeft(7), 73.0)
    n.handle(claim(9, 8, "mallory", wait=86400), 601.0)
    assert refusal(n.handle(claim(10, 1, "eve"), 602.0)).code is Code.IN_LINE


def test_who_has_too_many_claims_keeps_nobody_else_back() -> None:
    """Before: the claim beyond a tenant's own bound held up the whole line."""
    n = node(Policy(warm_workers=0, max_sessions=4, tenant_sessions=4, max_idle_leases=64))
    for number in range(1, 5):
        n.handle(claim(number, 1, "mallory", key="one"), 0.0)
    assert places(n.handle(claim(5, 1, "mallory", key="one", wait=600), 1.0)) == {5: (1, 1)}
    n.handle(claim(6, 6, "alice"), 1.0)
    assert places(n.handle(claim(7, 4, "bob", wait=600), 2.0)) == {7: (2, 2)}
    assert granted(n.handle(on.ClaimLeft(6), 3.0)) == [7]


def test_twice_as_many_runs_as_sessions_hold_leases_and_half_of_them_of_one_tenant() -> None:
    n = node(Policy(warm_workers=0, max_sessions=2, tenant_sessions=99, keep_place_seconds=0))
    said = {
        tenant: n.handle(claim(number, 1, tenant[:3], key="one"), 0.0)
        for number, tenant in enumerate(("eve-1", "eve-2", "eve-3", "ann-1", "bob-1", "cat-1"))
    }
    held = [tenant for tenant, actions in said.items() if granted(actions)]
    assert held == ["eve-1", "eve-2", "ann-1", "bob-1"]
    assert refusal(said["eve-3"]).code is Code.TENANT_LIMIT
    assert refusal(said["cat-1"]).code is Code.SERVER_FULL


def test_claims_wait_for_a_place_of_a_session() -> None:
    policy = Policy(warm_workers=0, max_sessions=2, tenant_sessions=2)
    n = node(policy, bob=TenantPolicy(sessions=1))
    n.handle(claim(1, 1), 0.0)
    n.handle(session(2, "other", 1), 0.0)
    assert places(n.handle(claim(3, 1, wait=60), 1.0)) == {3: (1, 1)}
    # The place of the first claim is kept for its run.
    assert refusal(n.handle(session(4, "third", 1), 1.0)).code is Code.SERVER_FULL
    n.handle(session(5, "run-1"), 1.0)
    assert n.sessions.get(5) is not None
    assert granted(n.handle(on.ClientLeft(2), 2.0)) == [3]


def test_a_tenant_cannot_crowd_the_line() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    for number in (2, 3, 4):
        n.handle(claim(number, 1, wait=60), 1.0)
    refused = refusal(n.handle(claim(5, 1, wait=60), 1.0))
    assert refused.code is Code.SERVER_FULL
    assert "3 claims of tenant 'alice' wait in line" in refused.sentence
    n.handle(claim(6, 1, "bob", wait=60), 1.0)
    refused = refusal(n.handle(claim(7, 1, "carol", wait=60), 1.0))
    assert "4 claims from this address wait in line" in refused.sentence
    n.handle(claim(8, 1, "dave", wait=60, address="there"), 1.0)
    assert len(n.line) == 5


def test_a_server_that_is_drained_lets_nobody_wait() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    n.handle(claim(2, 1, wait=60), 1.0)
    assert refusal(n.handle(on.DrainRequested(9), 2.0)).code is Code.DRAINING
    n.handle(on.UndrainRequested(10), 3.0)
    n.handle(claim(3, 1, wait=60), 4.0)
    assert refusal(n.handle(on.StopRequested(), 5.0)).code is Code.STOPPING


def test_an_owner_waits_in_line_for_what_it_lent() -> None:
    quota = {"model": Amount(1_000_000, 8 * GIB)}
    n = node(
        Policy(warm_workers=0, absent_tenant_unlimited=False),
        alice=TenantPolicy(quota=quota),
        bob=TenantPolicy(quota={"model": Amount()}, borrow=True),
    )
    n.handle(claim(1, 6, "bob"), 0.0)
    actions = n.handle(claim(2, 8, wait=120), 1.0)
    assert do.AnnounceReclaim("lease-1", 30.0) in actions
    assert places(actions) == {2: (1, 1)}
    actions = n.handle(on.TimePassed(), 31.0)
    assert do.DropPage("lease-1") in actions
    assert granted(actions) == [2]


def test_a_claim_in_line_is_cancelled_with_a_sentence() -> None:
    n = node()
    n.handle(claim(1, 8), 0.0)
    n.handle(claim(2, 8, wait=60), 0.0)
    n.handle(claim(3, 8, wait=60), 0.0)
    actions = n.handle(on.ClaimCancelled(7, 2, "it was cancelled"), 1.0)
    assert refusal(actions).sentence == "it was cancelled"
    assert do.Answer(7, "") in actions
    assert places(actions) == {3: (1, 1)}, "the next one moves up"
    again = n.handle(on.ClaimCancelled(8, 2, "it was cancelled"), 2.0)
    assert [a for a in again if isinstance(a, do.Refuse)], "it does not wait any more"
    held = n.handle(on.ClaimCancelled(9, 1, "it was cancelled"), 3.0)
    assert [a for a in held if isinstance(a, do.Refuse)], "what has its lease does not wait"
    assert [lease.id for lease in n.leases] == ["lease-1"]


def test_a_lease_is_called_as_its_run_or_else_its_first_program() -> None:
    n = node()

    def name() -> str:
        (lease,) = n.leases
        return lease.name

    n.handle(replace(claim(1, key="job"), name="train-a"), 0.0)
    n.handle(replace(session(2, "job"), name="train.py"), 1.0)
    assert name() == "train-a", "a session does not rename the lease of its run"
    n.handle(on.ClientLeft(2), 2.0)
    n.handle(on.ClaimLeft(1), 3.0)
    n.handle(replace(session(3, "job"), name="test.py"), 4.0)
    assert name() == "test.py", "the lease was empty, and is another program's now"


def test_a_granted_lease_keeps_its_name() -> None:
    n = node()
    n.handle(on.LeaseRequested(1, "alice", "job", name="nightly"), 0.0)
    n.handle(replace(session(2, "job"), name="train.py"), 1.0)
    n.handle(on.ClientLeft(2), 2.0)
    n.handle(replace(session(3, "job"), name="test.py"), 3.0)
    assert [lease.name for lease in n.leases] == ["nightly"]
