"""Leases that a cluster's manager asked for: they wait for their run, and end with it."""

from __future__ import annotations

import pytest

from rgpu_common.clock import Clock
from rgpu_common.clusters import AGENT_ATTEMPT
from rgpu_common.v1 import agent_pb2, lease_pb2
from rgpu_server.agent.attempts import KEEP_SECONDS, MOST, Attempts
from rgpu_server.agent.orders import Orders, ground_of
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.booked import Booked, booked_of
from rgpu_server.core.model import Device, LeaseKey, Refusal, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy

GIB = 1 << 30
RUN = "run-0123456789abcdef"


def node(devices: int = 2) -> Node:
    return Node(
        [Device(n, "emulated", 8 * GIB, 2 * GIB) for n in range(devices)], Policy(warm_workers=0)
    )


class Still(Clock):
    def now(self) -> float:
        return 0.0


class Desk:
    """Hands events to a node, as `service.control.Control` does with a conductor."""

    def __init__(self, served: Node) -> None:
        self._node = served
        self.warned: list[str] = []

    def grant(
        self, tenant: str, key: str, wish: Wish, ttl: float, booked: Booked, name: str
    ) -> do.Answer | Refusal:
        return self._ask(on.LeaseRequested(1, tenant, key, wish, ttl, booked=booked, name=name))

    def revoke(self, lease: str, why: str = "") -> do.Answer | Refusal:
        return self._ask(on.RevokeRequested(1, lease, why))

    def warn(self, lease: str, sentence: str) -> None:
        self.warned.append(sentence)

    def _ask(self, event: on.Event) -> do.Answer | Refusal:
        for action in self._node.handle(event, 0.0):
            if isinstance(action, do.Answer):
                return action
            if isinstance(action, do.Refuse):
                return action.refusal
        raise AssertionError("no answer")


def orders(served: Node) -> Orders:
    return Orders(Desk(served), served, Still())  # type: ignore[arg-type]


def order(**more: object) -> agent_pb2.GrantOrder:
    quota = lease_pb2.Quota(memory_bytes=GIB, share_request_ppm=300_000)
    wanted = {
        "request_id": RUN, "attempt": 1, "tenant": "a", "ordinals": [0], "quota": quota,
        "ttl_seconds": 60.0, **more,
    }  # fmt: skip
    return agent_pb2.GrantOrder(**wanted)  # type: ignore[arg-type]


def told(mine: Orders, **more: object) -> str:
    """Returns why an order is refused; "" if it is carried out."""
    refusal = mine.grant(order(**more))
    return "" if refusal is None else refusal.sentence


def claim(served: Node, number: int = 7, key: str = RUN, now: float = 1.0) -> list[do.Action]:
    return served.handle(on.ClaimRequested(number, "a", key), now)


def test_a_grant_behind_a_revoked_lease_whose_sessions_end_says_so() -> None:
    served = node()
    mine = orders(served)
    assert told(mine) == ""
    actions = served.handle(on.SessionRequested(1, "a", RUN, "box"), 1.0)
    (worker,) = [one.worker for one in actions if isinstance(one, do.StartWorker)]
    served.handle(on.WorkerReady(worker), 1.0)
    served.handle(on.SessionOpened(worker), 1.0)
    mine.revoke(RUN, 1)
    assert "its sessions are still ending; try again" in told(mine, attempt=2)
    served.handle(on.WorkerExited(worker, "it was told to end"), 2.0)
    assert told(mine, attempt=2) == ""


def test_a_booked_lease_waits_for_its_run_and_ends_with_it() -> None:
    served = node()
    assert told(orders(served)) == ""
    assert do.GrantClaim(7, "lease-1") in claim(served)
    served.handle(on.TimePassed(), 500.0)  # long after its ttl
    assert [lease.id for lease in served.leases] == ["lease-1"]
    served.handle(on.ClaimLeft(7), 501.0)
    assert list(served.leases) == []


def test_a_run_that_never_comes_loses_its_lease() -> None:
    served = node()
    orders(served).grant(order())
    assert served.next_wake(0.0) == 60.0
    served.handle(on.TimePassed(), 60.0)
    assert list(served.leases) == []


def test_the_same_order_again_changes_nothing_and_another_attempt_is_refused() -> None:
    served = node()
    mine = orders(served)
    assert told(mine) == told(mine) == ""
    assert len(list(served.leases)) == 1
    assert "another attempt" in told(mine, attempt=2)
    assert "another attempt" in told(mine, ordinals=[1])


def test_a_grant_that_comes_after_its_revocation_is_refused() -> None:
    served = node()
    mine = orders(served)
    mine.revoke(RUN, 2)
    assert "was revoked" in told(mine, attempt=2)
    assert told(mine, attempt=3) == ""
    mine.revoke(RUN, 2)
    assert len(list(served.leases)) == 1
    mine.revoke(RUN, 3)
    assert list(served.leases) == []


def test_several_cards_are_granted_together_or_not_at_all() -> None:
    served = node()
    mine = orders(served)
    assert "device 5" in told(mine, ordinals=[0, 5])
    assert list(served.leases) == []
    assert told(mine, request_id="run-other-0123456789", ordinals=[1, 0]) == ""
    keys = {lease.key.name: lease.device for lease in served.leases}
    assert keys == {"run-other-0123456789": 1, "run-other-0123456789.1": 0}


def test_leases_are_named_by_their_places_among_all_cards_of_the_request() -> None:
    """The cards before these are on another node."""
    served = node()
    assert told(orders(served), ordinals=[1, 0], first_place=3) == ""
    keys = {served.leases.of(LeaseKey("a", f"{RUN}.{place}")).device for place in (3, 4)}  # type: ignore[union-attr]
    assert keys == {0, 1}
    assert served.leases.of(LeaseKey("a", RUN)) is None
    assert told(orders(node()), first_place=1023) == ""


def test_a_card_without_room_is_refused_with_the_servers_sentence() -> None:
    served = node(1)
    mine = orders(served)
    quota = lease_pb2.Quota(memory_bytes=9 * GIB)
    assert "9 GiB" in told(mine, quota=quota)
    assert list(served.leases) == []


def test_a_refusal_says_whether_room_would_change_it() -> None:
    served = node(1)
    mine = orders(served)
    room = mine.grant(order(quota=lease_pb2.Quota(memory_bytes=9 * GIB)))
    assert room is not None
    assert ground_of(room) == agent_pb2.GROUND_UNSPECIFIED
    terms = mine.grant(order(quota=lease_pb2.Quota(memory_bytes=GIB, priority=5)))
    assert terms is not None
    assert ground_of(terms) == agent_pb2.GROUND_TENANT
    wrong = mine.grant(order(tenant="*"))
    assert wrong is not None
    assert ground_of(wrong) == agent_pb2.GROUND_FORBIDDEN


def test_a_draining_server_grants_nothing() -> None:
    served = node()
    served.handle(on.DrainRequested(1), 0.0)
    assert "drain" in told(orders(served))


def test_a_key_of_another_lease_is_not_taken() -> None:
    served = node()
    served.handle(on.LeaseRequested(1, "a", RUN, Wish(memory_bytes=GIB)), 0.0)
    assert "another lease" in told(orders(served))
    lease = served.leases.of(LeaseKey("a", RUN))
    assert lease is not None
    assert lease.booked is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"request_id": ""},
        {"request_id": "x" * 99},
        {"attempt": 0},
        {"tenant": ""},
        {"tenant": "*"},
        {"tenant": "\n"},
        {"ordinals": []},
        {"first_place": 1024},
        {"ordinals": [0, 1], "first_place": 1023},
        {"first_place": (1 << 32) - 1},
        {"ordinals": [0, 0]},
        {"ordinals": list(range(200))},
        {"quota": lease_pb2.Quota(share_request_ppm=2_000_000)},
        {"neighbours": agent_pb2.Neighbours(affinity="x" * 64)},
        {"ttl_seconds": float("nan")},
        {"ttl_seconds": -1.0},
    ],
)
def test_an_order_that_no_manager_gives_is_refused(wrong: dict[str, object]) -> None:
    served = node()
    assert told(orders(served), **wrong) != ""
    assert list(served.leases) == []


def test_what_a_daemon_has_noted_is_read_again() -> None:
    booked = Booked(RUN, 3, True, "a", "b", "c")
    assert booked_of(booked.record()) == booked
    for nothing in (None, 5, {}, {"request": ""}, {"request": 5}):
        assert booked_of(nothing) is None
    assert booked_of({"request": RUN, "attempt": "x"}) == Booked(RUN)


def test_a_manager_grants_after_an_agent_whose_lease_it_ended() -> None:
    """The attempts of agents are later than all of a manager."""
    mine = orders(node())
    assert told(mine, attempt=AGENT_ATTEMPT) == ""
    mine.revoke(RUN, AGENT_ATTEMPT)
    assert told(mine, attempt=1) == ""
    mine.revoke(RUN, 1)
    assert "was revoked" in told(mine, attempt=1)


def test_revoked_attempts_are_forgotten_in_time_and_never_many() -> None:
    attempts = Attempts()
    for number in range(MOST + 10):
        attempts.revoke(f"run-{number}", 1, 0.0)
    assert len(attempts) == MOST
    assert not attempts.is_revoked("run-0", 1)
    assert attempts.is_revoked(f"run-{MOST}", 1)
    attempts.revoke("run-late", 5, KEEP_SECONDS)
    assert len(attempts) == 1
    assert attempts.is_revoked("run-late", 5)
    assert not attempts.is_revoked("run-late", 6)


@pytest.mark.parametrize("wild", [-1.0, float("nan"), float("inf"), 1e300])
def test_an_announced_end_is_noted_and_taken_back(wild: float) -> None:
    served = node()
    desk = Desk(served)
    mine = Orders(desk, served, Still())  # type: ignore[arg-type]
    assert told(mine) == ""
    (lease,) = served.leases
    mine.warn(agent_pb2.WarnOrder(request_id=RUN, attempt=1, sentence="soon", ends_seconds=30))
    assert (lease.announced_at, desk.warned) == (30.0, ["soon"])
    mine.warn(agent_pb2.WarnOrder(request_id=RUN, attempt=2, ends_seconds=5))
    assert lease.announced_at == 30.0  # of another attempt
    mine.warn(agent_pb2.WarnOrder(request_id=RUN, attempt=1, ends_seconds=wild))
    assert (lease.announced_at, desk.warned) == (None, ["soon"])
