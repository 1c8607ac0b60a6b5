"""Sessions at the array seam: workers of another kind beside the device's own."""

from __future__ import annotations

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.model import Code, Device, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy
from rgpu_server.core.pool import array_pool, device_library, seam_of

GIB = 1 << 30
CUPY = array_pool("emulated", "cupy")


def started(*pools: str) -> Node:
    """A node whose first worker of the driver seam is warm."""
    n = Node([Device(0, "emulated", 8 * GIB, 2 * GIB)], Policy(warm_workers=1), {}, pools)
    assert n.handle(on.Started(), 0.0) == [do.StartWorker(1, "emulated")]
    n.handle(on.WorkerReady(1), 0.0)
    return n


def ask(session: int, seam: str) -> on.SessionRequested:
    return on.SessionRequested(session, "alice", "key", "box", Wish(), "", seam)


def assigned(actions: list[do.Action]) -> list[tuple[int, int]]:
    return [(a.worker, a.session) for a in actions if isinstance(a, do.AssignWorker)]


def test_pools_have_names() -> None:
    assert array_pool("emulated", "") == "emulated"
    assert (device_library(CUPY), seam_of(CUPY)) == ("emulated", "cupy")
    assert (device_library("cuda"), seam_of("cuda")) == ("cuda", "")


def test_a_worker_for_arrays_is_started_when_a_session_asks_and_not_before() -> None:
    n = started(CUPY)
    actions = n.handle(ask(7, "cupy"), 1.0)
    assert do.StartWorker(2, CUPY) in actions
    assert not assigned(actions)
    assert assigned(n.handle(on.WorkerReady(2), 1.5)) == [(2, 7)]
    n.handle(on.SessionOpened(2), 1.6)
    assert n.handle(on.TimePassed(), 2.0) == []


def test_both_seams_share_a_lease() -> None:
    n = started(CUPY)
    n.handle(ask(7, "cupy"), 1.0)
    n.handle(on.WorkerReady(2), 1.5)
    actions = n.handle(ask(8, ""), 2.0)
    assert assigned(actions) == [(1, 8)]
    (lease,) = n.leases
    assert sorted(lease.slots.values()) == [7, 8]


def test_a_seam_that_is_not_there_is_refused_with_the_remedy() -> None:
    n = started(CUPY)
    (refused,) = n.handle(ask(7, "torch"), 1.0)
    assert isinstance(refused, do.RefuseSession)
    assert refused.refusal.code is Code.NO_WORKER
    assert "install rgpu there with its extra torch" in refused.refusal.sentence
    assert not list(n.leases)


def test_workers_for_arrays_that_do_not_start_leave_the_driver_seam_alone() -> None:
    n = started(CUPY)
    now = 1.0
    for session in range(100, 120):
        now += 60
        actions = n.handle(ask(session, "cupy"), now)
        for action in actions:
            if isinstance(action, do.StartWorker) and action.library == CUPY:
                n.handle(on.WorkerExited(action.worker, "it has no NumPy"), now)
        if n.pools[CUPY].broken:
            break
    assert n.pools[CUPY].broken
    refused = [a for a in n.handle(ask(9, "cupy"), now + 6) if isinstance(a, do.RefuseSession)]
    assert "it has no NumPy" in refused[0].refusal.sentence
    assert assigned(n.handle(ask(8, ""), now + 7)) == [(1, 8)]
