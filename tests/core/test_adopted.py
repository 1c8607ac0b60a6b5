"""A node that takes over the leases and sessions of an earlier daemon."""

from __future__ import annotations

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.leases import Lease
from rgpu_server.core.model import Code, Device, LeaseKey, LeaseState, Quota, SessionState, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy
from rgpu_server.core.sessions import Session

GIB = 1 << 30


def node() -> Node:
    return Node([Device(0, "emulated", 8 * GIB, 2 * GIB)], Policy(warm_workers=1))


def lease(number: int, key: str, explicit: bool = False, **slots: int) -> Lease:
    held = Lease(f"lease-{number}", LeaseKey("alice", key), 0, Quota(3 * GIB), explicit, 30.0, None)
    held.slots = {int(slot.removeprefix("s")): session for slot, session in slots.items()}
    return held


def session(number: int, of: Lease, worker: int) -> Session:
    slot = next(slot for slot, held in of.slots.items() if held == number)
    return Session(number, "alice", of.id, slot, "emulated", 1.0, None, SessionState.OPEN, worker)


def test_sessions_and_memory_count_and_numbers_go_on() -> None:
    n = node()
    held = lease(7, "granted-4", s0=11, s2=12)
    assert n.handle(on.Adopted((held,), (session(11, held, 1), session(12, held, 2))), 50.0) == [
        do.StartWorker(3, "emulated")
    ]
    assert sum(h.amount.memory_bytes for h in n.leases.holdings()) == 3 * GIB
    assert [s.id for s in n.sessions] == [11, 12]
    (page, answer) = n.handle(on.LeaseRequested(1, "alice"), 51.0)
    assert isinstance(page, do.MakePage)
    assert isinstance(answer, do.Answer)
    granted = n.leases.get("lease-8")
    assert granted is not None
    assert granted.key.name == "granted-5"
    full = n.handle(on.LeaseRequested(2, "alice", "b", Wish(memory_bytes=4 * GIB)), 51.0)
    assert isinstance(full[0], do.Refuse)
    assert full[0].refusal.code is Code.NO_MEMORY


def test_names_of_a_tenants_own_do_not_spoil_fresh_keys() -> None:
    n = node()
    named = [lease(1, "9" * 200), lease(2, "granted-" + "9" * 200), lease(3, "granted-2")]
    for each, tenant in zip(named, ("alice", "alice", "bob"), strict=True):
        each.key, each.quota = LeaseKey(tenant, each.key.name), Quota(1)
    n.handle(on.Adopted(tuple(named), ()), 50.0)
    n.handle(on.LeaseRequested(1, "alice", "granted-4", Wish(memory_bytes=1)), 51.0)
    for number, key in ((5, "granted-3"), (6, "granted-5")):
        answer = n.handle(on.LeaseRequested(2, "alice", "", Wish(memory_bytes=1)), 51.0)[-1]
        assert answer == do.Answer(2, f"lease-{number}")
        assert next(x for x in n.leases if x.id == answer.lease).key == LeaseKey("alice", key)


def test_a_worker_that_exits_gives_its_slot_back() -> None:
    n = node()
    held = lease(1, "a", s3=9)
    n.handle(on.Adopted((held,), (session(9, held, 1),)), 0.0)
    assert n.handle(on.WorkerExited(1, "the client left"), 1.0)[:2] == [
        do.ClearSlot("lease-1", 3, 9),
        do.ForgetSession(9, "the client left"),
    ]
    assert held.ends_at == 6.0


def test_an_explicit_lease_must_be_kept_alive_again() -> None:
    n = node()
    n.handle(on.Adopted((lease(1, "a", explicit=True), lease(2, "b")), ()), 100.0)
    assert [held.ends_at for held in n.leases] == [130.0, 105.0]
    assert do.DropPage("lease-2") in n.handle(on.TimePassed(), 105.0)


def test_what_was_being_ended_is_ended_again() -> None:
    n = node()
    held = lease(1, "a", s0=9)
    held.state = LeaseState.REVOKED
    actions = n.handle(on.Adopted((held,), (session(9, held, 4),)), 0.0)
    (end,) = [a for a in actions if isinstance(a, do.EndSession)]
    assert (end.worker, end.session) == (4, 9)
    assert do.KillWorker(4) in n.handle(on.TimePassed(), 2.0)
