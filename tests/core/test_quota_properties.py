"""Whatever is asked for, in whatever order: properties of quotas."""

from __future__ import annotations

import pytest
from core.quota_node import GIB, POLICY, ask, granted, node, owns, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.lease_table import LeaseTable
from rgpu_server.core.model import Amount, Code
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.quota import over, total
from rgpu_server.core.shares import Change

TENANTS = {
    "a": owns(0.75, 6, borrow=True),
    "b": owns(0.75, 6),
    "c": owns(0.5, 4, borrow=True, borrow_share_ppm=250_000, borrow_memory_bytes=2 * GIB),
    "d": owns(0, 0, borrow=True),
}
STRICT = Policy(
    warm_workers=0,
    absent_tenant_unlimited=False,
    reclaim_seconds=10,
    claim_seconds=20,
    max_ttl_seconds=1e9,
)
ASKS = st.lists(
    st.tuples(
        st.sampled_from(sorted(TENANTS)),
        st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75]),
        st.sampled_from([0.5, 1, 2, 4]),
        st.integers(0, 3),  # 0: another lease ends first
    ),
    max_size=14,
)


def play(asks: list[tuple[str, float, float, int]]) -> tuple[Node, float]:
    n = node(STRICT, 2, **TENANTS)
    now = 0.0
    for number, (tenant, share, gib, end) in enumerate(asks):
        leases = list(n.leases)
        if not end and leases:
            n.handle(on.RevokeRequested(0, leases[number % len(leases)].id), now)
        ask(n, tenant, f"k{number}", share, gib, now)
        now += 1.0
        n.handle(on.TimePassed(), now)
    return n, now


@settings(max_examples=150, deadline=None)
@given(asks=ASKS, share=st.sampled_from([0.25, 0.5, 0.75]), gib=st.sampled_from([1, 2, 4]))
def test_an_owner_gets_what_it_owns_where_it_would_fit_without_the_borrowers(
    asks: list[tuple[str, float, float, int]], share: float, gib: float
) -> None:
    n, now = play(asks)
    book = n.leases
    wanted = Amount(int(share * 1e6), int(gib * GIB))
    held = book.quotas.held("b", "m", book.holdings())
    if (
        over(
            Amount(held.share_ppm + wanted.share_ppm, held.memory_bytes + wanted.memory_bytes),
            Amount(750_000, 6 * GIB),
        )
        != Amount()
    ):
        return
    loans = book.borrowing()
    room = []
    for device in n.devices:
        here = [h for h in book.holdings() if h.device == device.ordinal]
        fixed_share = total(h for h in here if h.lease not in loans[0]).share_ppm
        fixed_memory = total(h for h in here if h.lease not in loans[1]).memory_bytes
        room.append(
            fixed_share + wanted.share_ppm <= 1_000_000
            and fixed_memory + wanted.memory_bytes <= device.memory_bytes
        )
    first = ask(n, "b", "wanted", share, gib, now)
    assert granted(first) or refusal(first)[0] is Code.LENT or not any(room)
    if granted(first) or not any(room):
        return
    # The borrower goes on asking for as much as it can get.
    for number in range(4):
        ask(n, "d", f"greedy-{number}", 0.25, 1, now + 5)
    n.handle(on.TimePassed(), now + 10)
    ask(n, "d", "greedier", 0, 4, now + 10)
    assert granted(ask(n, "b", "wanted", share, gib, now + 11))


@settings(max_examples=150, deadline=None)
@given(asks=ASKS)
def test_nothing_is_promised_twice(asks: list[tuple[str, float, float, int]]) -> None:
    n, _ = play(asks)
    book = n.leases
    holdings = book.holdings()
    for device in n.devices:
        here = total(h for h in holdings if h.device == device.ordinal)
        assert over(here, Amount(1_000_000, device.memory_bytes)) == Amount()
    borrowed, lent = book.quotas.balance("m", holdings, {})
    assert over(borrowed, lent) == Amount()
    for tenant, policy in TENANTS.items():
        held = book.quotas.held(tenant, "m", holdings)
        assert policy.quota is not None
        more = over(held, policy.quota["m"])
        if not policy.borrow:
            assert more == Amount()
        if tenant == "c":
            assert over(more, Amount(250_000, 2 * GIB)) == Amount()
    # The share that a weakened lease asked for is remembered.
    for lease in book:
        assert lease.quota.share_request_ppm in (0, lease.asked_share_ppm)


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["a", "e", "f", "g"]),
        st.sampled_from([0.0, 0.125, 0.25, 0.5]),
        st.sampled_from([0.5, 1, 2, 4]),
        st.sampled_from([None, 0, 1]),
        st.booleans(),  # a lease that is there is resized
    ),
    max_size=14,
)
SOME_BOUND = {"a": TENANTS["a"], "g": TenantPolicy(memory_bytes=4 * GIB), "*": TenantPolicy()}


@settings(max_examples=150, deadline=None)
@given(changes=CHANGES)
def test_what_is_counted_in_all_decides_as_what_is_counted_one_by_one(
    changes: list[tuple[str, float, float, int | None, bool]],
) -> None:
    """Where there is room, nobody looks at each lease. With totals beyond all, everybody does."""
    nodes = [node(POLICY, 2, **SOME_BOUND) for _ in range(2)]
    for now, change in enumerate(changes):
        first = _changed(nodes[0], float(now), *change)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(LeaseTable, "total_on", lambda table, device: Amount(1 << 40, 1 << 60))
            second = _changed(nodes[1], float(now), *change)
        assert first == second


def _changed(
    n: Node, now: float, tenant: str, share: float, gib: float, device: int | None, resize: bool
) -> list[do.Action]:
    leases = list(n.leases)
    if not resize or not leases:
        return ask(n, tenant, f"k{now}", share, gib, now, device=device)
    lease = leases[int(now) % len(leases)]
    change = Change(int(gib * GIB), None, int(share * 1_000_000), 1_000_000)
    return n.handle(on.ResizeRequested(2, lease.id, change, {}), now)
