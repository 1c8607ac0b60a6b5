"""Reservations in the core: their bounds, and how they count; and what the manager says of them."""

from __future__ import annotations

import pytest

from cluster.samples import GIB, PERCENT, node, request
from cluster.test_quotas import BORROWS, ONE, WHOLE, Desk
from rgpu_cluster.core import events as ev
from rgpu_cluster.core.actions import Abandon
from rgpu_cluster.core.card import CardId
from rgpu_cluster.core.limits import SECOND
from rgpu_cluster.core.line import Entry, Line
from rgpu_cluster.core.quotas import Quotas, TenantQuota
from rgpu_cluster.core.request import holding_of
from rgpu_cluster.core.standing import standings_of
from rgpu_cluster.manager.reservations import MOST_ENDED, Reservation, Reservations
from rgpu_common.errors import UnitError
from rgpu_common.units import PPM, format_duration, parse_duration
from rgpu_common.v1 import agent_pb2

SMALL = {"share_ppm": PERCENT, "memory_bytes": 1 << 20}
HOUR = 3600
ID = "train-0123456789abcdef"


def test_a_tenant_has_so_many_and_no_more_and_others_have_theirs() -> None:
    desk = Desk()
    for number in range(16):
        desk.ask(number, "a", wait=False, reserve_seconds=HOUR, **SMALL)
    assert len(desk.granted) == 16
    desk.ask(90, "a", wait=False, reserve_seconds=HOUR, **SMALL)
    assert "has 16 reservations, and a tenant has at most 16" in desk.denied["run-90"]
    desk.ask(91, "b", wait=False, reserve_seconds=HOUR, **SMALL)
    desk.ask(92, "a", wait=False, **SMALL)  # a run
    assert {"run-91", "run-92"} <= set(desk.granted)


def test_those_that_wait_count_and_so_do_those_that_only_a_report_tells_of() -> None:
    desk = Desk()
    desk.ask(0, "b", **WHOLE)
    desk.ask(1, "b", **WHOLE)
    for number in range(10, 26):
        desk.ask(number, "a", reserve_seconds=HOUR, **WHOLE)
    desk.ask(90, "a", reserve_seconds=HOUR, **WHOLE)
    assert "run-90" in desk.denied
    later = Desk()
    held = holding_of(request(5, reserve_seconds=HOUR, **SMALL), 80 * GIB, 1)
    many = tuple(type(held)(f"res-{n}", "a", PERCENT, 1 << 20, reserved=True) for n in range(16))
    later.tell(ev.NodeReported(node("n1", 2, 80 * GIB, generation=2), {CardId("n1", 0): many}))
    later.ask(91, "a", reserve_seconds=HOUR, **SMALL)
    assert "run-91" in later.denied


def test_the_longest_time_is_the_operators() -> None:
    desk = Desk()
    desk.ask(1, "a", reserve_seconds=86400, **SMALL)
    desk.ask(2, "a", reserve_seconds=86401, **SMALL)
    assert desk.granted == ["run-1"]
    assert "the longest here is 1 d" in desk.denied["run-2"]


def test_a_reservation_counts_in_the_quota_and_never_borrows() -> None:
    desk = Desk(a=BORROWS, b=ONE)
    desk.ask(1, "a", reserve_seconds=HOUR, **WHOLE)
    desk.ask(2, "a", wait=False, reserve_seconds=HOUR, **WHOLE)
    assert desk.granted == ["run-1"]
    assert "borrows for runs alone, not to reserve" in desk.denied["run-2"]
    desk.ask(3, "a", **WHOLE)  # a run may
    assert desk.granted == ["run-1", "run-3"]


def test_the_client_of_a_run_leaves_and_that_of_a_reservation_may() -> None:
    desk = Desk()
    desk.ask(1, "a", **SMALL)
    desk.ask(2, "a", reserve_seconds=HOUR, **SMALL)
    desk.ask(3, "a", **WHOLE)
    desk.ask(4, "a", **WHOLE)  # waits
    left = [desk.manager.handle(ev.Left(f"run-{number}"), SECOND) for number in (1, 2, 4, 99)]
    assert left == [[Abandon("run-1", "n1", 1)], [], [], []]


def test_how_tenants_stand_counts_only_those_that_the_operator_named() -> None:
    desk = Desk(a=TenantQuota(share_ppm=PPM, memory_bytes=8 * GIB, borrow=True), b=TenantQuota())
    desk.ask(1, "a", **WHOLE)
    desk.ask(2, "a", **WHOLE)
    desk.ask(3, "a", **WHOLE, cards=2)
    desk.ask(4, "stranger", **SMALL)
    core = desk.manager
    found = standings_of(core.quotas, core.pool, core.line)
    assert set(found) == {"a", "b"}
    ann = found["a"]
    assert (ann.has.share_ppm, ann.borrowed.share_ppm) == (2 * PPM, PPM)
    assert (ann.has.memory_bytes, ann.borrowed.memory_bytes) == (2 * GIB, 0)
    assert (ann.waits.share_ppm, ann.waits.memory_bytes) == (2 * PPM, 2 * GIB)
    assert (found["b"].borrowed.share_ppm, found["b"].quota.share_ppm) == (0, None)


def test_what_waits_and_what_is_reserved_is_a_part_of_the_whole() -> None:
    desk = Desk(a=TenantQuota(share_ppm=2 * PPM))
    desk.ask(1, "a", reserve_seconds=HOUR, share_ppm=30 * PERCENT, memory_bytes=GIB)
    desk.ask(2, "a", share_ppm=20 * PERCENT, memory_bytes=GIB)
    line = Line()
    line.add(Entry(request(3, whole=True, memory_bytes=0, memory_ppm=PPM), 0, 1, wait=True))
    found = standings_of(Quotas({"a": ONE}), desk.manager.pool, line)["a"]
    assert (found.has.share_ppm, found.reserved.share_ppm) == (50 * PERCENT, 30 * PERCENT)
    assert (found.waits.share_ppm, found.waits.memory_bytes) == (PPM, 80 * GIB)


# What the manager says of reservations


def held(reservation: str = ID, left: float = 100.0, **more: object) -> agent_pb2.HeldLease:
    known = {
        "request_id": reservation, "tenant": "a", "ordinal": 0, "reserved": True,
        "left_seconds": left, **more,
    }  # fmt: skip
    return agent_pb2.HeldLease(**known)  # type: ignore[arg-type]


def told(*leases: agent_pb2.HeldLease, now: float = 1000.0) -> Reservations:
    known = Reservations()
    known.heard("n1", leases, now)
    return known


def test_one_is_found_by_its_id_and_by_its_name_and_only_by_its_tenant() -> None:
    known = told(held(ordinal=1), held(ordinal=0), agent_pb2.HeldLease(request_id="run-x"))
    for text in (ID, "train"):
        found = known.find(text, "a")
        assert isinstance(found, Reservation)
        assert found.parts == {"n1": ((0, 1), 1100.0)}
        assert found.until == 1100.0
        assert found.missing == 0
        assert known.find(text, "b") == ""
        assert "tenant b has no reservation" in known.why_none(text, "b", 1000.0)


def test_one_of_two_nodes_lacks_cards_until_both_have_reported() -> None:
    known = told(held(cards=3))
    found = known.get(ID)
    assert found is not None
    assert found.missing == 2
    known.heard("n2", [held(ordinal=1, cards=3, left=90.0), held(ordinal=0, cards=3)], 1000.0)
    found = known.get(ID)
    assert found is not None
    assert (list(found.parts), found.missing, found.until) == (["n1", "n2"], 0, 1090.0)
    known.heard("n1", [], 1010.0)
    found = known.get(ID)
    assert found is not None
    assert found.missing == 1
    known.heard("n2", [], 1010.0)
    assert known.get(ID) is None


def test_two_tenants_have_no_reservation_together() -> None:
    known = told(held(cards=2))
    known.heard("n2", [held(cards=2, tenant="b")], 1000.0)
    found = known.get(ID)
    assert found is not None
    assert (found.tenant, list(found.parts), found.missing) == ("b", ["n2"], 1)


def test_a_name_that_two_have_is_refused_with_both_ids() -> None:
    other = "train-fedcba9876543210"
    said = told(held(), held(other)).find("train", "a")
    assert isinstance(said, str)
    assert ID in said
    assert other in said


@pytest.mark.parametrize(
    ("passed", "released", "why"),
    [
        (100.0, False, "its time was over"),
        (50.0, False, "its server ended it"),
        (50.0, True, "it was released"),
    ],
)
def test_what_became_of_one_is_told_to_its_tenant_alone(
    passed: float, released: bool, why: str
) -> None:
    known = told(held())
    if released:
        known.released(ID)
    known.heard("n2", [], 1000.0 + passed)  # another node has nothing to say of it
    assert known.get(ID) is not None
    known.heard("n1", [], 1000.0 + passed)
    assert known.find(ID, "a") == ""
    assert f"ended 10 s ago, because {why}" in known.why_none("train", "a", 1010.0 + passed)
    assert "has no reservation" in known.why_none(ID, "b", 1010.0 + passed)


def test_one_of_a_node_that_stays_away_ends_at_its_time() -> None:
    known = told(held())
    known.look(1150.0)
    assert known.get(ID) is not None
    known.look(1161.0)
    assert known.get(ID) is None


@pytest.mark.parametrize("left", [float("nan"), float("inf"), -5.0, 1e300])
def test_a_node_that_says_nonsense_breaks_nothing(left: float) -> None:
    known = told(held(left=left))
    found = known.find(ID, "a")
    assert isinstance(found, Reservation)
    assert 1000.0 <= found.until <= 1000.0 + 30 * 86400


def test_ended_ones_are_forgotten_when_there_are_thousands() -> None:
    known = told(*(held(f"res-{number:016}") for number in range(MOST_ENDED + 5)))
    known.heard("n1", [], 2000.0)
    assert "has no reservation" in known.why_none("res-" + "0" * 16, "a", 2000.0)
    assert "ended" in known.why_none(f"res-{MOST_ENDED:016}", "a", 2000.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("90", 90), ("30min", 1800), ("2h", 7200), ("1.5d", 129600)]
)
def test_times_are_read(text: str, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0.4s", "-1h", "1y", "h", "1e99", "1 h 2", "9" * 400])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UnitError, match="is no time"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59.9, "59 s"), (5400, "1 h 30 min"), (90061, "1 d 1 h"), (-3, "0 s")],
)
def test_times_are_shown_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
