"""An operator's changes to running leases and to the node."""

from __future__ import annotations

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Code, Device, LeaseState, PageState, Quota, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change
from rgpu_server.core.standing import Drain

GIB = 1 << 30
POLICY = Policy(warm_workers=0)


def node(policy: Policy = POLICY, devices: int = 1, **tenants: TenantPolicy) -> Node:
    return Node([Device(n, "emulated", 8 * GIB, 2 * GIB) for n in range(devices)], policy, tenants)


def grant(key: str, memory: int = GIB, share: int = 0, **more: object) -> on.LeaseRequested:
    wish = Wish(memory_bytes=memory, share_request_ppm=share, **more)  # type: ignore[arg-type]
    return on.LeaseRequested(1, "alice", key, wish)


def session(
    number: int, key: str = "", address: str = "10.0.0.1", **fields: object
) -> on.SessionRequested:
    wish = Wish(**fields)  # type: ignore[arg-type]
    return on.SessionRequested(number, "alice", key, f"box-{key}", wish, address)


def open_session(n: Node, number: int, key: str, now: float = 0.0, **fields: object) -> int:
    """Opens a session and returns its worker."""
    worker = next(
        a.worker
        for a in n.handle(session(number, key, **fields), now)
        if isinstance(a, do.StartWorker)
    )
    n.handle(on.WorkerReady(worker), now)
    n.handle(on.SessionOpened(worker), now)
    return worker


def refusal(actions: list[do.Action]) -> tuple[Code, str]:
    found = [a.refusal for a in actions if isinstance(a, (do.Refuse, do.RefuseSession))]
    assert len(found) == 1
    return found[0].code, found[0].sentence


# Shares are admitted


def test_shares_never_add_up_to_more_than_a_device() -> None:
    n = node()
    n.handle(grant("a", share=600_000), 0.0)
    assert refusal(n.handle(grant("b", share=500_000), 0.0)) == (
        Code.NO_SHARE,
        "a share of 50% does not fit on device 0: 40% of its time is not promised yet, "
        "10% too little; ask for less share or wait until a lease ends",
    )
    assert isinstance(n.handle(grant("c", share=400_000), 0.0)[-1], do.Answer)


def test_a_lease_goes_where_both_fit_and_a_refusal_names_another_device() -> None:
    n = node(devices=2)
    n.handle(grant("a", 2 * GIB, 900_000), 0.0)  # device 0
    n.handle(grant("b", 4 * GIB, 100_000), 0.0)  # device 1, which has more memory
    assert [lease.device for lease in n.leases] == [0, 1]
    n.handle(grant("c", GIB, 500_000), 0.0)
    assert [lease.device for lease in n.leases] == [0, 1, 1]
    assert refusal(n.handle(grant("d", GIB, 200_000, device=0), 0.0)) == (
        Code.NO_SHARE,
        "a share of 20% does not fit on device 0: 10% of its time is not promised yet, "
        "10% too little; it fits on device 1",
    )
    code, text = refusal(n.handle(grant("e", 7 * GIB, 500_000), 0.0))
    assert code is Code.NO_MEMORY
    assert text == (
        "a lease of 7 GiB and a share of 50% does not fit on device 0: 6 GiB of its 8 GiB are "
        "free, 1 GiB too little and 10% of its time is not promised yet, 40% too little; "
        "device 1 has 3 GiB and a share of 40% free: ask for less or wait until a lease ends"
    )


def test_a_session_that_asks_for_other_sizes_than_its_granted_lease_is_refused() -> None:
    n = node(alice=TenantPolicy(max_priority=9, max_weight=9))
    n.handle(grant("a", share=300_000, priority=3), 0.0)
    for fields, what in (
        ({"priority": 4}, "a priority of 3 and 4 was asked for"),
        ({"weight": 2}, "a weight of 1 and 2 was asked for"),
        ({"memory_ppm": 500_000}, "a memory of 1 GiB and 4 GiB was asked for"),
        ({"memory_ppm": 62_500}, "a memory of 1 GiB and 512 MiB was asked for"),
    ):
        code, text = refusal(n.handle(session(7, "a", **fields), 0.0))
        assert code is Code.LEASE_TOO_SMALL
        assert what in text


# Resize


def test_a_resize_is_admitted_like_a_grant() -> None:
    n = node()
    n.handle(grant("a", share=300_000), 0.0)
    n.handle(grant("b", share=300_000), 0.0)
    assert n.handle(on.ResizeRequested(2, "lease-1", Change(share_request_ppm=700_000)), 1.0) == [
        do.UpdatePage("lease-1", Quota(GIB, 700_000), PageState.ACTIVE),
        do.Answer(2, "lease-1"),
    ]
    assert refusal(
        n.handle(on.ResizeRequested(3, "lease-2", Change(None, None, 400_000)), 1.0)
    ) == (
        Code.NO_SHARE,
        "a share of 40% does not fit on device 0: 30% of its time is not promised yet, "
        "10% too little; ask for less share or wait until a lease ends",
    )


def test_memory_below_what_is_held_stays_taken_until_it_is_freed() -> None:
    n = node()
    n.handle(grant("a", 6 * GIB), 0.0)
    open_session(n, 1, "a")
    resize = on.ResizeRequested(2, "lease-1", Change(GIB), {1: 5 * GIB})
    assert n.handle(resize, 1.0) == [
        do.UpdatePage("lease-1", Quota(GIB), PageState.ACTIVE),
        do.Answer(2, "lease-1"),
    ]
    assert n.leases.oversize() == ["lease-1"]
    assert refusal(n.handle(grant("b", 4 * GIB), 2.0))[0] is Code.NO_MEMORY
    n.handle(on.MemoryObserved({"lease-1": 4 * GIB}), 3.0)
    assert isinstance(n.handle(grant("b", 4 * GIB), 4.0)[-1], do.Answer)
    n.handle(on.MemoryObserved({"lease-1": GIB // 2}), 5.0)
    assert n.leases.oversize() == []
    assert isinstance(n.handle(grant("c", 3 * GIB), 6.0)[-1], do.Answer)


def test_kill_ends_the_largest_sessions_until_the_rest_fits() -> None:
    n = node()
    n.handle(grant("a", 6 * GIB), 0.0)
    workers = {number: open_session(n, number, "a") for number in (1, 2, 3)}
    used = {1: GIB, 2: 3 * GIB, 3: 2 * GIB}
    actions = n.handle(on.ResizeRequested(2, "lease-1", Change(3 * GIB), used, kill=True), 1.0)
    ended = [a for a in actions if isinstance(a, do.EndSession)]
    assert [(e.worker, e.session) for e in ended] == [(workers[2], 2)]
    assert "was made smaller than the memory that it held" in ended[0].sentence
    assert actions[-1] == do.Answer(2, "lease-1", 1)


def test_without_kill_nothing_ends() -> None:
    n = node()
    n.handle(grant("a", 6 * GIB), 0.0)
    open_session(n, 1, "a")
    actions = n.handle(on.ResizeRequested(2, "lease-1", Change(GIB), {1: 5 * GIB}), 1.0)
    assert not any(isinstance(a, do.EndSession) for a in actions)


# Pause


def test_pause_and_resume_write_the_page_and_resize_keeps_it() -> None:
    n = node()
    n.handle(grant("a"), 0.0)
    assert n.handle(on.PauseRequested(2, "lease-1"), 1.0) == [
        do.UpdatePage("lease-1", Quota(GIB), PageState.PAUSED),
        do.Answer(2, "lease-1"),
    ]
    assert n.handle(on.PauseRequested(9, "lease-1"), 1.0)[-1] == do.Answer(
        9, "lease-1", unchanged=True
    )
    assert n.handle(on.ResizeRequested(3, "lease-1", Change(2 * GIB)), 1.0)[0] == do.UpdatePage(
        "lease-1", Quota(2 * GIB), PageState.PAUSED
    )
    assert n.handle(on.PauseRequested(4, "lease-1", False), 1.0) == [
        do.UpdatePage("lease-1", Quota(2 * GIB), PageState.ACTIVE),
        do.Answer(4, "lease-1"),
    ]
    again = n.handle(on.PauseRequested(5, "lease-1", False), 1.0)
    assert again[-1] == do.Answer(5, "lease-1", unchanged=True)
    assert refusal(n.handle(on.PauseRequested(5, "lease-9"), 1.0))[0] is Code.LEASE_UNKNOWN


# Drain


def test_a_drained_node_takes_nothing_new_and_what_runs_goes_on() -> None:
    n = node()
    n.handle(grant("a"), 0.0)
    open_session(n, 1, "a")
    assert n.handle(on.DrainRequested(2), 1.0) == [do.Answer(2, "")]
    assert n.handle(on.DrainRequested(3), 1.0) == [do.Answer(3, "", unchanged=True)]
    for event in (grant("b"), session(7, "a"), session(8, "c")):
        code, text = refusal(n.handle(event, 2.0))
        assert code is Code.DRAINING
        assert "being drained by its operator" in text
    assert n.handle(grant("a"), 3.0) == [do.Answer(1, "lease-1")]  # kept alive
    assert n.handle(on.TimePassed(), 20.0) == []
    assert len(n.sessions) == 1
    assert n.handle(on.UndrainRequested(3), 21.0) == [do.Answer(3, "")]
    assert n.handle(on.UndrainRequested(4), 21.0) == [do.Answer(4, "", unchanged=True)]
    assert isinstance(n.handle(grant("b"), 21.0)[-1], do.Answer)


def test_an_operator_who_pauses_what_its_owner_paused_changes_who_may_resume_it() -> None:
    n = node()
    n.handle(grant("a"), 0.0)
    n.handle(on.PauseRequested(2, "lease-1", operator=False), 1.0)
    assert n.handle(on.PauseRequested(3, "lease-1"), 1.0)[-1] == do.Answer(3, "lease-1")
    again = refusal(n.handle(on.PauseRequested(4, "lease-1", False, operator=False), 1.0))
    assert again[0] is Code.NOT_ALLOWED


def test_a_drain_with_an_end_ends_everything_then_and_keys_are_free_again() -> None:
    n = node()
    worker = open_session(n, 1, "")
    n.handle(grant("idle"), 0.0)
    n.handle(on.DrainRequested(2, 10.0), 1.0)
    assert n.next_wake(1.0) == 11.0
    actions = n.handle(on.TimePassed(), 11.0)
    assert do.DropPage("lease-2") in actions
    assert [a.session for a in actions if isinstance(a, do.EndSession)] == [1]
    n.handle(on.WorkerExited(worker, "told to"), 11.5)
    assert list(n.leases) == []
    assert n.standing.drain == Drain(None)
    n.handle(on.UndrainRequested(3), 12.0)
    # The first lease was implicit, so its container may come back.
    assert isinstance(n.handle(session(2, ""), 12.0)[0], do.MakePage)
    code, text = refusal(n.handle(session(3, "idle"), 12.0))
    assert code is Code.LEASE_ENDED
    assert "was ended when its server was drained" in text


def test_a_drain_at_once_and_one_that_makes_no_sense() -> None:
    n = node()
    n.handle(grant("a"), 0.0)
    assert refusal(n.handle(on.DrainRequested(2, -1.0), 1.0))[0] is Code.BAD_REQUEST
    assert n.standing.drain is None
    assert do.DropPage("lease-1") in n.handle(on.DrainRequested(3, 0.0), 1.0)


# Strangers


def test_empty_leases_give_way_at_once() -> None:
    n = node()
    worker = open_session(n, 1, "", memory_bytes=7 * GIB)
    n.handle(on.WorkerExited(worker, "its client ended"), 1.0)
    assert [lease.idle for lease in n.leases] == [True]
    actions = n.handle(grant("b", 4 * GIB), 1.5)
    assert actions[:2] == [do.DropPage("lease-1"), do.MakePage("lease-2", Quota(4 * GIB))]
    assert [lease.id for lease in n.leases] == ["lease-2"]


def test_only_as_many_empty_leases_go_as_are_needed() -> None:
    n = node()
    for number, size in ((1, 1), (2, 4), (3, 2)):
        worker = open_session(n, number, f"k{number}", memory_bytes=size * GIB)
        n.handle(on.WorkerExited(worker, "its client ended"), 1.0)
    n.handle(grant("b", 5 * GIB), 1.5)
    assert [lease.key.name for lease in n.leases] == ["k1", "k3", "b"]


def test_empty_leases_of_one_address_are_bounded() -> None:
    n = node(Policy(warm_workers=0, max_idle_leases=3))
    dropped = []
    for number in range(6):
        worker = open_session(n, number, f"made-up-{number}", memory_bytes=GIB)
        actions = n.handle(on.WorkerExited(worker, "its client ended"), float(number) / 10)
        dropped += [a.lease for a in actions if isinstance(a, do.DropPage)]
    assert dropped == ["lease-1", "lease-2", "lease-3"]
    assert len(list(n.leases)) == 3


def test_empty_leases_of_one_tenant_are_bounded_wherever_its_clients_are() -> None:
    n = node(Policy(warm_workers=0, max_idle_leases=3))
    for number in range(6):
        key = f"made-up-{number}"
        worker = open_session(n, number, key, memory_bytes=GIB, address=f"address-{number}")
        n.handle(on.WorkerExited(worker, "its client ended"), float(number) / 10)
    assert [lease.key.name for lease in n.leases] == ["made-up-3", "made-up-4", "made-up-5"]


def test_tenants_that_nobody_named_are_bounded() -> None:
    n = node(Policy(warm_workers=0, max_tenants=2), alice=TenantPolicy())
    for number, tenant in enumerate(("x", "y"), 1):
        n.handle(on.SessionRequested(number, tenant, "", "box"), 0.0)
    code, text = refusal(n.handle(on.SessionRequested(3, "z", "", "box"), 0.0))
    assert code is Code.TENANT_LIMIT
    assert text.startswith("the server serves 2 tenants that its configuration does not name")
    for number, tenant in enumerate(("x", "alice", "default"), 4):
        actions = n.handle(on.SessionRequested(number, tenant, "", "box"), 0.0)
        assert not any(isinstance(a, do.RefuseSession) for a in actions)
    n.handle(on.ClientLeft(1), 1.0)
    n.handle(on.ClientLeft(4), 1.0)
    # x has an empty lease at most, so z may come in.
    actions = n.handle(on.SessionRequested(9, "z", "", "box"), 1.0)
    assert not any(isinstance(a, do.RefuseSession) for a in actions)


def test_a_paused_lease_expires_like_any_other() -> None:
    n = node()
    n.handle(grant("a"), 0.0)
    n.handle(on.PauseRequested(2, "lease-1"), 1.0)
    assert n.handle(on.TimePassed(), 30.0) == [do.DropPage("lease-1")]
    assert all(lease.state is LeaseState.ACTIVE for lease in n.leases)
