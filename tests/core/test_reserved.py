"""Reservations on a server: leases that end at their time, and not with a program."""

from __future__ import annotations

import pytest
from core.test_booked import GIB, RUN, claim, node, order, orders, told
from msgspec.structs import replace

from rgpu_common.clusters import MAX_RESERVE_SECONDS
from rgpu_server.agent.using import card_uses
from rgpu_server.core import actions as do
from rgpu_server.core import events as on
from rgpu_server.core.booked import Booked
from rgpu_server.core.lease import Lease
from rgpu_server.core.model import Code, LeaseKey, Quota, Wish
from rgpu_server.core.node import Node
from rgpu_server.core.policy import Policy
from rgpu_server.tokens.protocol import UsageIs

HOUR = 3600.0


def reserved(seconds: float = HOUR) -> Node:
    served = node()
    assert told(orders(served), reserve_seconds=seconds) == ""
    return served


def refusal(answer: list[do.Action]) -> do.Refuse:
    found = [action for action in answer if isinstance(action, do.Refuse)]
    assert len(found) == 1, answer
    return found[0]


def only(served: Node) -> Lease:
    (lease,) = served.leases
    return lease


def test_programs_come_and_go_and_it_stays_until_its_time() -> None:
    served = reserved()
    for number in range(3):
        assert do.GrantClaim(number, "lease-1") in claim(served, number, now=100.0 * number)
        served.handle(on.ClaimLeft(number), 100.0 * number + 50.0)
    assert only(served).ends_at == HOUR
    served.handle(on.TimePassed(), HOUR - 1.0)
    assert only(served).reserved
    served.handle(on.TimePassed(), HOUR)
    assert list(served.leases) == []


def test_two_programs_at_once_share_the_one_lease() -> None:
    served = reserved()
    assert do.GrantClaim(1, "lease-1") in claim(served, 1)
    assert do.GrantClaim(2, "lease-1") in claim(served, 2)
    assert only(served).quota.memory_bytes == GIB


def test_a_program_that_runs_at_the_end_is_told_why() -> None:
    served = reserved()
    served.handle(on.SessionRequested(1, "a", RUN), 1.0)
    served.handle(on.TimePassed(), 5.0)
    answer = served.handle(on.TimePassed(), HOUR)
    ends = [a for a in answer if isinstance(a, do.RefuseSession | do.EndSession)]
    sentence = ends[0].refusal.sentence if isinstance(ends[0], do.RefuseSession) else ""
    assert sentence == (
        f"the time of reservation {RUN} is over; reserve for longer with `rgpu reserve --for`"
    )
    late = claim(served, 9, now=HOUR + 1)
    (why,) = [a for a in late if isinstance(a, do.RefuseClaim)]
    assert why.refusal.code is Code.LEASE_ENDED


def test_its_tenant_cannot_make_it_longer() -> None:
    served = reserved()
    answer = refusal(served.handle(on.KeepAliveRequested(1, "lease-1"), 9.0))
    assert "its end is fixed" in answer.refusal.sentence
    wish = Wish(0, GIB, 300_000)
    again = served.handle(on.LeaseRequested(2, "a", RUN, wish, 10 * HOUR), 9.0)
    assert "its end is fixed" in refusal(again).refusal.sentence
    assert only(served).ends_at == HOUR


def test_the_same_order_again_does_not_make_it_longer() -> None:
    served = reserved()
    mine = orders(served)
    assert told(mine, reserve_seconds=10 * HOUR) == ""
    assert only(served).ends_at == HOUR


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0, MAX_RESERVE_SECONDS + 1])
def test_a_time_that_cannot_be_is_refused(seconds: float) -> None:
    served = node()
    assert told(orders(served), reserve_seconds=seconds) != ""
    assert list(served.leases) == []


def test_it_may_be_longer_than_a_lease_that_is_kept_alive() -> None:
    assert only(reserved(MAX_RESERVE_SECONDS)).ends_at == MAX_RESERVE_SECONDS


def adopted(now: float, ends_at: float | None) -> Lease:
    """A reservation of an hour that a restarted daemon takes over."""
    lease = Lease("lease-1", LeaseKey("a", RUN), 0, Quota(GIB), True, HOUR, ends_at)
    lease.booked = Booked(RUN, reserved=True)
    served = node()
    served.handle(on.Adopted((lease,), ()), now)
    return only(served)


def test_a_restarted_daemon_keeps_its_end() -> None:
    lease = adopted(now=1000.0, ends_at=1500.0)
    assert (lease.ends_at, lease.explicit) == (1500.0, True)


def test_a_clock_that_began_anew_gives_no_more_than_the_whole_time() -> None:
    assert adopted(now=10.0, ends_at=90_000.0).ends_at == 10.0 + HOUR
    assert adopted(now=10.0, ends_at=None).ends_at == 10.0 + HOUR


def test_one_that_ended_while_the_daemon_was_away_ends_at_once() -> None:
    lease = Lease("lease-1", LeaseKey("a", RUN), 0, Quota(GIB), True, HOUR, 900.0)
    lease.booked = Booked(RUN, reserved=True)
    served = node()
    served.handle(on.Adopted((lease,), ()), 1000.0)
    assert (served.next_wake(1000.0) or 1e9) <= 1000.0
    served.handle(on.TimePassed(), 1000.0)
    assert list(served.leases) == []


def test_reservations_count_among_the_leases_that_a_tenant_was_granted() -> None:
    served = Node(node().devices, Policy(warm_workers=0, max_leases=2))
    mine = orders(served)
    quota = order().quota
    small = type(quota)(memory_bytes=1 << 20, share_request_ppm=1000)
    said = [
        told(mine, request_id=f"res-{n:016}", reserve_seconds=HOUR, quota=small) for n in range(9)
    ]
    assert said[0] == ""
    assert said[-1] != ""


def test_a_client_that_has_gone_gives_back_what_nobody_came_for() -> None:
    served = node()
    mine = orders(served)
    assert told(mine, ordinals=[0, 1]) == ""
    claim(served, 1)  # the program has the first of its two leases
    mine.abandon(RUN, 1)
    assert [lease.device for lease in served.leases] == [0]
    assert told(mine, request_id="run-other-0123456789", ordinals=[1]) == ""


def test_a_client_that_has_gone_takes_nothing_from_a_program_or_a_reservation() -> None:
    for seconds, comes in ((0.0, True), (HOUR, False)):
        served = node()
        mine = orders(served)
        assert told(mine, reserve_seconds=seconds) == ""
        if comes:
            claim(served)
        mine.abandon(RUN, 1)
        assert len(list(served.leases)) == 1


def test_only_the_attempt_that_was_abandoned_ends() -> None:
    served = node()
    mine = orders(served)
    assert told(mine, attempt=2) == ""
    mine.abandon(RUN, 1)
    assert len(list(served.leases)) == 1
    mine.abandon(RUN, 2)
    assert list(served.leases) == []


class Meters:
    """Each lease has used half of its device, and holds 5 bytes."""

    def charged(self, lease_id: str) -> int:
        return 5

    def time_used(self, lease_id: str) -> UsageIs:
        return UsageIs(lease_id, 0, 0, 0, 0, 0, 500_000, 500_000)


def test_lent_time_is_what_a_lease_uses_beyond_its_share() -> None:
    served = reserved()
    assert told(orders(served), request_id="run-other-0123456789", reserve_seconds=0.0) == ""
    (row,) = card_uses(served.leases, Meters())
    assert (row.ordinal, row.used_ppm, row.lent_ppm, row.used_bytes) == (0, 1_000_000, 400_000, 10)


def test_a_lease_that_uses_less_than_its_share_does_not_hide_what_another_is_lent() -> None:
    served = reserved()
    lease = only(served)
    lease.quota = replace(lease.quota, share_request_ppm=900_000)
    (row,) = card_uses(served.leases, Meters())
    assert row.lent_ppm == 0
