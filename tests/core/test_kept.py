"""Kept leases: programs come and go in them, and they end when nobody keeps them alive."""

from __future__ import annotations

from core.test_booked import RUN, claim, node, order, orders, told

from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.booked import Booked, booked_of
from rgpu_server.core.lease import Lease
from rgpu_server.core.node import Node


def kept(ttl: float = 60.0) -> Node:
    served = node()
    assert told(orders(served), kept=True, ttl_seconds=ttl) == ""
    return served


def only(served: Node) -> Lease:
    (lease,) = served.leases
    return lease


def test_nobody_comes_and_nobody_keeps_it() -> None:
    served = kept()
    served.handle(on.TimePassed(), 59.0)
    assert only(served).ends_at == 60.0
    served.handle(on.TimePassed(), 60.0)
    assert list(served.leases) == []


def test_programs_come_and_go_and_its_time_begins_with_the_last() -> None:
    served = kept()
    for number in range(3):
        assert do.GrantClaim(number, "lease-1") in claim(served, number, now=50.0 * number)
        assert only(served).ends_at is None
        # It is long past the end that it had before.
        served.handle(on.TimePassed(), 50.0 * number + 45.0)
        served.handle(on.ClaimLeft(number), 50.0 * number + 45.0)
        assert only(served).ends_at == 50.0 * number + 105.0
    served.handle(on.TimePassed(), 205.0)
    assert list(served.leases) == []


def test_a_session_keeps_it_as_a_run_does() -> None:
    served = kept()
    served.handle(on.SessionRequested(1, "a", RUN, "box"), 1.0)
    assert only(served).ends_at is None
    served.handle(on.ClientLeft(1), 100.0)
    assert only(served).explicit


def test_keeping_it_alive_gives_it_a_longer_time() -> None:
    served = kept()
    served.handle(on.KeepAliveRequested(1, "lease-1", 600.0), 30.0)
    assert only(served).ends_at == 630.0
    served.handle(on.KeepAliveRequested(2, "lease-1"), 40.0)
    assert only(served).ends_at == 640.0
    claim(served, 1, now=50.0)
    served.handle(on.KeepAliveRequested(3, "lease-1", 600.0), 60.0)
    assert only(served).ends_at is None


def test_who_abandons_its_attempt_does_not_end_it() -> None:
    served = kept()
    orders(served).abandon(RUN, 1)
    assert only(served).key.name == RUN


def test_another_attempt_for_the_same_cards_is_the_lease_that_is_there() -> None:
    served = kept()
    mine = orders(served)
    assert "another attempt" in told(mine, kept=True, attempt=1_000_000)
    assert mine.grant(order(kept=True, attempt=1_000_000), any_attempt=True) is None
    assert only(served).booked == Booked(
        RUN,
        1,
        wanted_ppm=300_000,
        wanted_bytes=1 << 30,
        kept=True,
        since=only(served).booked.since,  # type: ignore[union-attr]
    )
    other = mine.grant(order(kept=True, attempt=1_000_000, ordinals=[1]), any_attempt=True)
    assert other is not None
    assert "another attempt" in other.sentence


def test_it_is_not_a_reservation_too() -> None:
    assert "not both" in told(orders(node()), kept=True, reserve_seconds=60.0)


def test_a_record_of_an_earlier_release_is_not_kept() -> None:
    record = Booked(RUN, kept=True).record()
    assert booked_of(record) == Booked(RUN, kept=True)
    del record["kept"]
    assert booked_of(record) == Booked(RUN)
