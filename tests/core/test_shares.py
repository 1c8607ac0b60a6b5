"""Policies, priority and weight: the quota that a wish gives."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rgpu_common.sharing import SharePolicy, parse_policy
from rgpu_server.core.model import Device, Quota, RefusedError, Wish
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change, changed, resolve

GIB = 1 << 30
DEVICE = Device(0, "emulated", 8 * GIB, 2 * GIB)
TENANT = TenantPolicy(max_priority=50, max_weight=4)
NONE, FIXED, BURST, BEST_EFFORT = SharePolicy


def wish(**fields: object) -> Quota:
    return resolve(Policy(), TENANT, Wish(**fields), DEVICE)  # type: ignore[arg-type]


def test_what_nobody_says_is_the_servers() -> None:
    assert wish() == Quota(2 * GIB, 0, 1_000_000)
    server = Policy(default_share_request_ppm=100_000, default_share_limit_ppm=500_000)
    assert resolve(server, TENANT, Wish(), DEVICE) == Quota(2 * GIB, 100_000, 500_000)


def test_memory_is_a_part_of_the_device_that_is_chosen() -> None:
    assert wish(memory_ppm=250_000).memory_bytes == 2 * GIB
    assert wish(memory_ppm=1_000_000).memory_bytes == 8 * GIB


@pytest.mark.parametrize(
    ("policy", "request_ppm", "limit", "expected"),
    [
        (FIXED, 400_000, 0, (400_000, 400_000)),
        (FIXED, 400_000, 400_000, (400_000, 400_000)),
        (BURST, 400_000, 0, (400_000, 1_000_000)),
        (BURST, 0, 0, (0, 1_000_000)),
        (BEST_EFFORT, 0, 0, (0, 1_000_000)),
        (BEST_EFFORT, 0, 300_000, (0, 300_000)),
        (NONE, 400_000, 700_000, (400_000, 700_000)),
        (NONE, 400_000, 0, (400_000, 1_000_000)),
    ],
)
def test_policies(
    policy: SharePolicy, request_ppm: int, limit: int, expected: tuple[int, int]
) -> None:
    quota = wish(policy=policy, share_request_ppm=request_ppm, share_limit_ppm=limit)
    assert (quota.share_request_ppm, quota.share_limit_ppm, quota.policy) == (*expected, policy)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"policy": FIXED},
            "the policy fixed needs a share: it is the limit as well; give one with --share or "
            "RGPU_SHARE",
        ),
        (
            {"policy": FIXED, "share_request_ppm": 400_000, "share_limit_ppm": 700_000},
            "the policy fixed makes the limit 40% and asked for is 70%; "
            "leave the limit or the policy out",
        ),
        (
            {"policy": BURST, "share_limit_ppm": 700_000},
            "the policy burst makes the limit 100% and asked for is 70%; "
            "leave the limit or the policy out",
        ),
        (
            {"policy": BEST_EFFORT, "share_request_ppm": 100_000},
            "the policy best-effort guarantees nothing and the share is 10%; leave one of them out",
        ),
        ({"priority": 101}, "a priority is a number from 0 to 100, not 101"),
        ({"weight": 0}, "a weight is a number from 1 to 1000, not 0"),
        (
            {"priority": 60},
            "this tenant's leases have a priority of at most 50 and asked for is 60; "
            "the operator allows more with max_priority in the tenant's table",
        ),
        (
            {"weight": 5},
            "this tenant's leases have a weight of at most 4 and asked for is 5; "
            "the operator allows more with max_weight in the tenant's table",
        ),
    ],
)
def test_what_contradicts_itself_is_refused(fields: dict[str, object], sentence: str) -> None:
    with pytest.raises(RefusedError) as caught:
        wish(**fields)
    assert str(caught.value) == sentence


def test_what_is_asked_for_wins_over_the_servers_policy() -> None:
    fixed = Policy(default_policy=FIXED, default_share_request_ppm=200_000)
    assert resolve(fixed, TENANT, Wish(), DEVICE).share_limit_ppm == 200_000
    free = resolve(fixed, TENANT, Wish(share_limit_ppm=700_000), DEVICE)
    assert (free.policy, free.share_limit_ppm) == (NONE, 700_000)
    idle = Policy(default_policy=BEST_EFFORT)
    asked = resolve(idle, TENANT, Wish(share_request_ppm=300_000), DEVICE)
    assert (asked.policy, asked.share_request_ppm) == (NONE, 300_000)


OLD = Quota(GIB, 400_000, 400_000, FIXED, 7, 2)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (Change(), OLD),
        (Change(share_request_ppm=500_000), Quota(GIB, 500_000, 500_000, FIXED, 7, 2)),
        (Change(policy=BURST), Quota(GIB, 400_000, 1_000_000, BURST, 7, 2)),
        (Change(policy=BEST_EFFORT), Quota(GIB, 0, 400_000, BEST_EFFORT, 7, 2)),
        (
            Change(policy=NONE, share_limit_ppm=600_000),
            Quota(GIB, 400_000, 600_000, NONE, 7, 2),
        ),
        (Change(memory_ppm=500_000, priority=0), Quota(4 * GIB, 400_000, 400_000, FIXED, 0, 2)),
    ],
)
def test_changes_of_a_lease(change: Change, expected: Quota) -> None:
    assert changed(OLD, change, DEVICE, TENANT) == expected


def test_policies_have_names() -> None:
    assert [policy.word for policy in SharePolicy] == ["none", "fixed", "burst", "best-effort"]
    assert parse_policy("best-effort") is BEST_EFFORT


@pytest.mark.parametrize(
    ("policy", "change"),
    [
        (BEST_EFFORT, Change(share_request_ppm=200_000)),
        (BURST, Change(share_limit_ppm=500_000)),
        (FIXED, Change(share_limit_ppm=100_000)),
    ],
)
def test_a_policy_that_nobody_asked_for_is_named_with_its_remedy(
    policy: SharePolicy, change: Change
) -> None:
    share = 0 if policy is BEST_EFFORT else 300_000
    old = resolve(Policy(), TENANT, Wish(policy=policy, share_request_ppm=share), DEVICE)
    with pytest.raises(RefusedError, match="add --policy none"):
        changed(old, change, DEVICE, TENANT)
    free = replace(change, policy=NONE, share_limit_ppm=change.share_limit_ppm or 1_000_000)
    assert changed(old, replace(free, share_request_ppm=100_000), DEVICE, TENANT).policy is NONE
