"""A server of a cluster: only the manager and operators make leases on it and let them grow."""

from __future__ import annotations

import pytest
from core.claim_desk import GIB, claim, granted, node, places, refusal, session

from rgpu_common.sharing import SharePolicy
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.booked import Booked
from rgpu_server.core.model import Code, LeaseKey, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change

RUN = "run-0123456789abcdef"
MEMBER = Policy(warm_workers=0, member=True)
THIRD = 300_000
ANY = TenantPolicy(max_priority=100, max_weight=1000)


def member(policy: Policy = MEMBER) -> Node:
    """A server of a cluster on which alice has a lease of 30 % and 2 GiB from the manager."""
    served = node(policy, alice=ANY)
    wish = Wish(0, 2 * GIB, THIRD)
    order = on.LeaseRequested(1, "alice", RUN, wish, 60.0, booked=Booked(RUN, 1))
    assert isinstance(served.handle(order, 0.0)[-1], do.Answer)
    return served


def lease_id(served: Node, key: str = RUN) -> str:
    held = served.leases.of(LeaseKey("alice", key))
    assert held is not None
    return held.id


def answer(served: Node, event: on.Event, now: float = 1.0) -> do.Answer | Code:
    """Returns the answer to a caller of the API, or the code of the refusal."""
    for action in served.handle(event, now):
        if isinstance(action, do.Answer):
            return action
        if isinstance(action, do.Refuse):
            return action.refusal.code
    raise AssertionError("no answer")


def resized(served: Node, *, operator: bool = False, **change: object) -> do.Answer | Code:
    event = on.ResizeRequested(
        2,
        lease_id(served),
        Change(**change),
        operator=operator,  # type: ignore[arg-type]
    )
    return answer(served, event)


@pytest.mark.parametrize(
    "change",
    [
        {"share_request_ppm": 900_000}, {"share_request_ppm": THIRD + 1},
        {"memory_bytes": 2 * GIB + 1}, {"memory_ppm": 500_000}, {"priority": 1},
        {"policy": SharePolicy.FIXED, "share_request_ppm": 400_000},
    ],
)  # fmt: skip
def test_a_lease_grows_for_an_operator_or_the_manager_alone(change: dict[str, object]) -> None:
    served = member()
    assert resized(served, **change) is Code.NOT_ALLOWED
    assert isinstance(resized(served, operator=True, **change), do.Answer)
    alone = member(Policy(warm_workers=0))
    assert isinstance(resized(alone, **change), do.Answer)


def test_a_tenant_makes_its_lease_smaller_and_not_larger_again() -> None:
    served = member()
    smaller = {"share_request_ppm": 100_000, "share_limit_ppm": 500_000, "memory_bytes": GIB}
    assert isinstance(resized(served, weight=7, **smaller), do.Answer)
    assert resized(served, share_request_ppm=THIRD) is Code.NOT_ALLOWED
    assert resized(served, memory_bytes=2 * GIB) is Code.NOT_ALLOWED


@pytest.mark.parametrize("policy", [MEMBER, Policy(warm_workers=0)])
def test_a_tenant_is_granted_nothing_new(policy: Policy) -> None:
    served = member(policy)
    event = on.LeaseRequested(2, "alice", "mine", Wish(memory_bytes=GIB))
    if policy.member:
        assert answer(served, event) is Code.NOT_ALLOWED
    assert isinstance(answer(served, on.LeaseRequested(
        3, "alice", "theirs", Wish(memory_bytes=GIB), operator=True
    )), do.Answer)  # fmt: skip
    if not policy.member:
        assert isinstance(answer(served, event), do.Answer)


def test_a_run_joins_the_lease_that_the_manager_has_granted() -> None:
    served = member()
    assert granted(served.handle(claim(7, key=RUN), 1.0)) == [7]
    served.handle(session(8, RUN), 1.0)
    assert served.sessions.get(8) is not None


@pytest.mark.parametrize("wait", [0.0, 60.0])
def test_a_run_claims_no_lease_of_its_own_and_does_not_wait(wait: float) -> None:
    served = member()
    said = served.handle(claim(7, wait=wait, proved=True), 1.0)
    assert refusal(said).code is Code.NOT_ALLOWED
    assert "rgpu run --manager" in refusal(said).sentence
    # Nor where there is no room.
    said = served.handle(claim(8, gib=7, wait=wait, proved=True), 1.0)
    assert refusal(said).code is Code.NOT_ALLOWED
    assert not places(said)
    assert not served.line


def test_an_operators_run_has_a_lease_of_its_own() -> None:
    served = member()
    asked = claim(7)
    by_operator = on.ClaimRequested(
        7, "alice", asked.key, "box", asked.wish, "here", own=True, operator=True
    )
    assert granted(served.handle(by_operator, 1.0)) == [7]


def test_a_session_makes_no_lease_and_changes_none() -> None:
    served = member()
    said = served.handle(session(7, "mine"), 1.0)
    assert refusal(said).code is Code.NOT_ALLOWED
    # A lease of an operator's session is empty for a while, and keeps its sizes.
    wish = Wish(memory_bytes=2 * GIB)
    served.handle(on.SessionRequested(8, "alice", "old", "box", wish, operator=True), 1.0)
    served.handle(on.ClientLeft(8), 1.0)
    held = served.leases.of(LeaseKey("alice", "old"))
    assert held is not None
    assert not held.used
    said = served.handle(session(9, "old", gib=5), 1.0)
    assert refusal(said).code is Code.LEASE_TOO_SMALL
    served.handle(session(10, "old", gib=2), 1.0)
    assert served.sessions.get(10) is not None
    assert held.quota.memory_bytes == 2 * GIB
