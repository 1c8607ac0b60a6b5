"""Sessions and workers: opening, waiting, ending, crashing; each test states both lists."""

from __future__ import annotations

import pytest

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Code, Device, PageState, Quota, Refusal, SessionState, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy, TenantPolicy
from rgpu_server.core.shares import Change

GIB = 1 << 30
ONE_WARM = Policy(warm_workers=1, slots=2)


def node(policy: Policy = ONE_WARM, **tenants: TenantPolicy) -> Node:
    return Node([Device(0, "emulated", 8 * GIB, 2 * GIB)], policy, tenants)


def started(policy: Policy = ONE_WARM, **tenants: TenantPolicy) -> Node:
    """A node whose first worker is warm."""
    n = node(policy, **tenants)
    assert n.handle(on.Started(), 0.0) == [do.StartWorker(1, "emulated")]
    assert n.handle(on.WorkerReady(1), 0.0) == []
    return n


def ask(session: int, key: str = "", **wish: int) -> on.SessionRequested:
    return on.SessionRequested(session, "alice", key, "box", Wish(**wish))


def refusal(actions: list[do.Action]) -> Refusal:
    return next(a.refusal for a in actions if isinstance(a, do.RefuseSession))


def opened(n: Node, session: int, worker: int, now: float = 1.0) -> None:
    """Opens a session on a warm worker, and makes the next one warm."""
    actions = n.handle(ask(session), now)
    assert any(isinstance(a, do.AssignWorker) and a.worker == worker for a in actions)
    n.handle(on.SessionOpened(worker), now)
    for action in actions:
        if isinstance(action, do.StartWorker):
            n.handle(on.WorkerReady(action.worker), now)


def test_a_warm_worker_gets_the_session_and_the_next_one_is_started() -> None:
    n = started()
    assert n.handle(ask(7), 1.0) == [
        do.MakePage("lease-1", Quota(2 * GIB)),
        do.TakeSlot("lease-1", 0, 7),
        do.AssignWorker(
            worker=1,
            session=7,
            lease="lease-1",
            tenant="alice",
            slot=0,
            device=0,
            memory_bytes=2 * GIB,
        ),
        do.StartWorker(2, "emulated"),
    ]
    assert n.handle(on.SessionOpened(1), 1.1) == []
    assert [s.state for s in n.sessions] == [SessionState.OPEN]


def test_without_a_warm_worker_the_session_waits_for_the_next() -> None:
    n = node()
    n.handle(on.Started(), 0.0)
    actions = n.handle(ask(7), 1.0)
    assert do.StartWorker(2, "emulated") in actions
    assert not any(isinstance(a, do.AssignWorker) for a in actions)
    (assign,) = n.handle(on.WorkerReady(1), 1.2)
    assert isinstance(assign, do.AssignWorker)
    assert (assign.worker, assign.session) == (1, 7)


def test_processes_of_one_container_share_a_lease() -> None:
    n = started()
    opened(n, 1, 1)
    actions = n.handle(ask(2), 2.0)
    assert not any(isinstance(a, do.MakePage) for a in actions)
    assert do.TakeSlot("lease-1", 1, 2) in actions


def test_a_page_that_is_full_refuses_the_next_session() -> None:
    n = started()
    opened(n, 1, 1)
    opened(n, 2, 2)
    assert refusal(n.handle(ask(3), 2.0)).code is Code.LEASE_FULL


@pytest.mark.parametrize("memory", [1, 3])
def test_a_session_may_not_ask_for_another_size_than_a_lease_in_use(memory: int) -> None:
    n = started()
    opened(n, 1, 1)
    assert n.handle(ask(2, memory_bytes=memory * GIB), 2.0) == []
    assert n.next_wake(2.0) == 3.0  # until then the first one may end
    assert refusal(n.handle(on.TimePassed(), 3.0)) == Refusal(
        Code.LEASE_TOO_SMALL,
        f"lease 'container:box' of tenant 'alice' has a memory of 2 GiB and {memory} GiB was asked "
        "for: it is in use with that; leave the memory out, change the lease with `rgpu lease "
        f"resize lease-1 --memory {memory}GiB`, or use another lease key",
    )


def test_a_later_process_may_ask_for_what_its_lease_had_before_it_was_resized() -> None:
    n = started()
    actions = n.handle(ask(1, memory_bytes=3 * GIB), 1.0)
    assert any(isinstance(a, do.AssignWorker) for a in actions)
    n.handle(on.ResizeRequested(5, "lease-1", Change(memory_bytes=GIB)), 1.5)
    for session, size in ((2, 3 * GIB), (3, GIB)):
        n.handle(ask(session, memory_bytes=size), 2.0)
        assert n.sessions.get(session) is not None
        n.handle(on.ClientLeft(session), 2.1)
    n.handle(ask(4, memory_bytes=2 * GIB), 3.0)
    assert refusal(n.handle(on.TimePassed(), 4.0)).code is Code.LEASE_TOO_SMALL


def test_a_program_that_follows_another_gets_the_sizes_that_it_asks_for() -> None:
    n = started()
    opened(n, 1, 1)
    assert n.handle(ask(2, memory_bytes=3 * GIB), 2.0) == []
    actions = n.handle(on.WorkerExited(1, "the client left"), 2.1)
    assert actions[:4] == [
        do.ClearSlot("lease-1", 0, 1),
        do.ForgetSession(1, "the client left"),
        do.UpdatePage("lease-1", Quota(3 * GIB), PageState.ACTIVE),
        do.TakeSlot("lease-1", 0, 2),
    ]


def test_sessions_that_wait_for_their_lease_count_for_their_tenant() -> None:
    n = started(alice=TenantPolicy(sessions=2))
    opened(n, 1, 1)
    assert n.handle(ask(2, memory_bytes=3 * GIB), 2.0) == []
    found = refusal(n.handle(ask(3, memory_bytes=3 * GIB), 2.0))
    assert found.code is Code.TENANT_LIMIT
    assert "all of its sessions (2 of 2)" in found.sentence
    # The session that waits has its place.
    actions = n.handle(on.WorkerExited(1, "the client left"), 2.1)
    assert do.TakeSlot("lease-1", 0, 2) in actions
    assert not n.settling


def test_a_client_that_leaves_while_its_lease_settles_is_forgotten() -> None:
    n = started()
    opened(n, 1, 1)
    n.handle(ask(2, memory_bytes=3 * GIB), 2.0)
    assert n.handle(on.ClientLeft(2), 2.1) == [
        do.ForgetSession(2, "its client left before it was open")
    ]
    assert n.next_wake(2.1) is None


def test_the_end_of_a_worker_is_the_end_of_its_session() -> None:
    n = started()
    opened(n, 7, 1)
    assert n.handle(on.WorkerExited(1, "the client left"), 5.0) == [
        do.ClearSlot("lease-1", 0, 7),
        do.ForgetSession(7, "the client left"),
    ]


def test_an_implicit_lease_stays_for_its_grace_and_goes() -> None:
    n = started()
    opened(n, 7, 1)
    n.handle(on.WorkerExited(1, "the client left"), 5.0)
    assert n.next_wake(5.0) == 10.0
    assert n.handle(on.TimePassed(), 10.0) == [do.DropPage("lease-1")]
    # The lease was not revoked, so the same container may come back.
    assert isinstance(n.handle(ask(8), 11.0)[0], do.MakePage)


def test_within_its_grace_an_empty_lease_takes_the_sizes_of_who_comes() -> None:
    n = started()
    opened(n, 7, 1)
    n.handle(on.WorkerExited(1, "the client left"), 5.0)
    actions = n.handle(ask(8, memory_bytes=4 * GIB), 6.0)
    assert actions[:2] == [
        do.UpdatePage("lease-1", Quota(4 * GIB), PageState.ACTIVE),
        do.TakeSlot("lease-1", 0, 8),
    ]
    assert n.next_wake(6.0) == 16.0  # only the opening's deadline: the lease is held


def test_revoking_tells_the_sessions_and_frees_when_they_are_gone() -> None:
    n = started()
    opened(n, 7, 1)
    text = "lease 'container:box' of tenant 'alice' was revoked"
    assert n.handle(on.RevokeRequested(3, "lease-1"), 2.0) == [
        do.UpdatePage("lease-1", Quota(2 * GIB), PageState.ENDED),
        do.EndSession(1, 7, text),
        do.Answer(3, "lease-1", 1),
    ]
    assert [h.amount.memory_bytes for h in n.leases.holdings()] == [2 * GIB]
    assert n.handle(on.WorkerExited(1, "told to end"), 2.5) == [
        do.ClearSlot("lease-1", 0, 7),
        do.DropPage("lease-1"),
        do.ForgetSession(7, "told to end"),
    ]
    assert n.leases.holdings() == []
    assert refusal(n.handle(ask(8), 3.0)).code is Code.LEASE_ENDED


def test_a_worker_that_does_not_end_when_told_is_killed() -> None:
    n = started()
    opened(n, 7, 1)
    n.handle(on.RevokeRequested(3, "lease-1"), 2.0)
    assert n.next_wake(2.0) == 4.0
    assert n.handle(on.TimePassed(), 4.0) == [do.KillWorker(1)]
    assert n.handle(on.TimePassed(), 5.0) == []


def test_a_session_that_is_not_open_in_time_is_ended() -> None:
    n = started()
    n.handle(ask(7), 1.0)
    (end,) = n.handle(on.TimePassed(), 11.0)
    assert isinstance(end, do.EndSession)
    assert "its worker did not open it" in end.sentence


def test_a_session_that_waits_too_long_is_refused() -> None:
    n = node()
    n.handle(on.Started(), 0.0)
    n.handle(ask(7), 1.0)
    actions = n.handle(on.TimePassed(), 11.0)
    assert refusal(actions).code is Code.NO_WORKER
    assert do.ForgetSession(7, refusal(actions).sentence) in actions


def test_a_client_that_leaves_while_it_waits_frees_its_place() -> None:
    n = node()
    n.handle(on.Started(), 0.0)
    n.handle(ask(7), 1.0)
    assert n.handle(on.ClientLeft(7), 2.0) == [
        do.ClearSlot("lease-1", 0, 7),
        do.ForgetSession(7, "its client left before it was open"),
    ]
    assert n.handle(on.WorkerReady(1), 3.0) == []


def test_a_worker_that_dies_while_opening_answers_its_client() -> None:
    n = started()
    n.handle(ask(7), 1.0)
    actions = n.handle(on.WorkerExited(1, "it was ended by SIGSEGV"), 1.5)
    assert refusal(actions) == Refusal(
        Code.NO_WORKER,
        "the worker of this session ended before it was open: it was ended by SIGSEGV",
    )


def test_what_the_worker_refused_itself_is_not_answered_twice() -> None:
    n = started()
    n.handle(ask(7), 1.0)
    assert n.handle(on.SessionRefusedByWorker(1), 1.1) == []
    assert n.handle(on.WorkerExited(1, "refused"), 1.2) == [
        do.ClearSlot("lease-1", 0, 7),
        do.ForgetSession(7, "refused"),
    ]


def test_starts_that_fail_are_tried_again_later_and_later() -> None:
    n = node()
    n.handle(on.Started(), 0.0)
    now, waits = 0.0, []
    for worker in range(1, 9):
        assert n.handle(on.WorkerExited(worker, "no device"), now) == []
        wake = n.next_wake(now)
        assert wake is not None
        waits.append(round(wake - now, 3))
        now = wake
        assert n.handle(on.TimePassed(), now) == [do.StartWorker(worker + 1, "emulated")]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8]


def test_when_workers_do_not_start_a_session_is_told_at_once() -> None:
    n = node(Policy(warm_workers=1, max_start_failures=1))
    n.handle(on.Started(), 0.0)
    n.handle(on.WorkerExited(1, "the driver library is missing"), 0.0)
    assert refusal(n.handle(ask(7), 0.05)) == Refusal(
        Code.NO_WORKER,
        "the workers for 'emulated' do not start: the driver library is missing; "
        "the server's log says more",
    )
    assert list(n.leases) == []


def test_sessions_that_wait_are_told_when_workers_stop_starting() -> None:
    n = node(Policy(warm_workers=1, max_start_failures=1))
    n.handle(on.Started(), 0.0)
    n.handle(ask(7), 0.0)
    actions = n.handle(on.WorkerExited(1, "no device"), 0.1)
    assert refusal(actions).code is Code.NO_WORKER


def test_a_warm_worker_heals_the_pool() -> None:
    n = node(Policy(warm_workers=1, max_start_failures=1))
    n.handle(on.Started(), 0.0)
    n.handle(on.WorkerExited(1, "no device"), 0.0)
    n.handle(on.TimePassed(), 0.1)
    n.handle(on.WorkerReady(2), 0.2)
    assert any(isinstance(a, do.AssignWorker) for a in n.handle(ask(7), 0.3))


def test_a_worker_that_does_not_become_ready_is_given_up_and_another_one_starts() -> None:
    """Also if its process does not go: a driver may hold it in the kernel."""
    n = node(Policy(warm_workers=1, start_seconds=5.0, max_starting=1))
    assert n.handle(on.Started(), 0.0) == [do.StartWorker(1, "emulated")]
    n.handle(ask(7), 1.0)
    assert n.next_wake(1.0) == 5.0
    killed = do.KillWorker(1, "it was not ready after 5 s")
    assert n.handle(on.TimePassed(), 5.0) == [killed]
    assert n.pools["emulated"].failures == 1
    assert n.next_wake(5.0) == 5.1
    assert n.handle(on.TimePassed(), 5.1) == [do.StartWorker(2, "emulated")]
    assert n.handle(on.WorkerReady(1), 5.2) == [], "it is being killed"
    assert any(isinstance(a, do.AssignWorker) for a in n.handle(on.WorkerReady(2), 5.3))
    n.handle(on.WorkerExited(1, "killed"), 6.0)
    assert n.pools["emulated"].failures == 0, "it has failed once"


def test_sessions_are_told_when_workers_hang_at_their_start() -> None:
    n = node(Policy(warm_workers=1, start_seconds=5.0, max_start_failures=1))
    n.handle(on.Started(), 0.0)
    n.handle(ask(7), 1.0)
    assert "do not start: it was not ready after 5 s" in str(
        refusal(n.handle(on.TimePassed(), 5.0))
    )


def test_the_server_and_the_tenant_have_a_maximum_of_sessions() -> None:
    n = started(Policy(warm_workers=1, max_sessions=1))
    opened(n, 1, 1)
    assert refusal(n.handle(ask(2), 2.0)).code is Code.SERVER_FULL
    n = started(alice=TenantPolicy(sessions=0))
    assert refusal(n.handle(ask(1), 1.0)).code is Code.TENANT_LIMIT


def test_one_tenant_has_half_of_the_sessions_unless_its_table_says_otherwise() -> None:
    n = started(Policy(warm_workers=1, max_sessions=4))
    opened(n, 1, 1)
    opened(n, 2, 2)
    refused = refusal(n.handle(ask(3), 2.0))
    assert refused.code is Code.TENANT_LIMIT
    assert "sessions.per_tenant" in str(refused)
    n = started(Policy(warm_workers=1, max_sessions=4, tenant_sessions=1))
    opened(n, 1, 1)
    assert refusal(n.handle(ask(2), 2.0)).code is Code.TENANT_LIMIT
    n = started(Policy(warm_workers=1, max_sessions=4), alice=TenantPolicy(sessions=4))
    opened(n, 1, 1)
    opened(n, 2, 2)
    opened(n, 3, 3)


def test_stopping_lets_sessions_go_on_and_takes_no_more() -> None:
    n = started()
    opened(n, 7, 1)
    assert n.handle(on.StopRequested(), 2.0) == [do.StopWorker(2)]
    assert n.handle(on.WorkerExited(2, "the worker ended"), 2.1) == []
    assert refusal(n.handle(ask(8), 2.2)).code is Code.STOPPING
    assert [s.state for s in n.sessions] == [SessionState.OPEN]


def test_stopping_for_good_ends_sessions_too() -> None:
    n = started()
    opened(n, 7, 1)
    assert do.EndSession(1, 7, "the server was stopped by its operator") in n.handle(
        on.StopRequested(end_sessions=True), 2.0
    )


def test_tenants_take_turns_for_the_next_worker() -> None:
    n = node(Policy(warm_workers=0, max_starting=1, settle_seconds=0))
    for session in range(1, 21):
        n.handle(ask(session, f"run-{session}", memory_bytes=1 << 20), 0.0)
    n.handle(on.SessionRequested(21, "bob", "run", "box", Wish(memory_bytes=1 << 20)), 0.0)
    order = []
    for worker in range(1, 6):
        for action in n.handle(on.WorkerReady(worker), 1.0):
            if isinstance(action, do.AssignWorker):
                order.append(action.session)
                n.handle(on.SessionOpened(worker), 1.0)
    assert order == [1, 21, 2, 3, 4]
