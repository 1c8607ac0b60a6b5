"""Tickets: what they show of a wait, and what they do not."""

from __future__ import annotations

from rgpu_cluster.manager.tickets import FRESH_SECONDS, Tickets, key_of

KEY = key_of(b"a secret")
NOW, DAY = 1_800_000_000.0, 86400.0


def signed() -> bytes:
    """A ticket of an earlier manager, for a request that has waited for a day."""
    return Tickets(KEY).sign("run-1", "alice", NOW - DAY, NOW)


def test_a_later_manager_knows_how_long_a_request_has_waited() -> None:
    assert Tickets(KEY).waited(signed(), "run-1", "alice", NOW + 60) == DAY + 60


def test_a_ticket_counts_for_its_request_and_its_tenant_only() -> None:
    later = Tickets(KEY)
    assert later.waited(signed(), "run-2", "alice", NOW) == 0
    assert later.waited(signed(), "run-1", "bob", NOW) == 0
    assert later.waited(signed(), "run-1", "alice", NOW) == DAY


def test_a_ticket_that_was_changed_counts_for_nothing() -> None:
    ticket = signed()
    for at in range(len(ticket)):
        bad = bytearray(ticket)
        bad[at] ^= 1
        assert Tickets(KEY).waited(bytes(bad), "run-1", "alice", NOW) == 0
    for size in range(len(ticket)):
        assert Tickets(KEY).waited(ticket[:size], "run-1", "alice", NOW) == 0
    assert Tickets(KEY).waited(ticket + b"\0", "run-1", "alice", NOW) == 0
    assert Tickets(key_of(b"another")).waited(ticket, "run-1", "alice", NOW) == 0
    assert Tickets().waited(ticket, "run-1", "alice", NOW) == 0


def test_a_request_that_has_left_the_line_begins_anew() -> None:
    later = Tickets(KEY)
    assert later.waited(signed(), "run-1", "alice", NOW) == DAY
    assert later.waited(signed(), "run-1", "alice", NOW) == 0
    own = later.sign("run-2", "alice", NOW - DAY, NOW)
    assert later.waited(own, "run-2", "alice", NOW) == 0


def test_nobody_keeps_a_ticket_for_a_later_restart() -> None:
    assert Tickets(KEY).waited(signed(), "run-1", "alice", NOW + FRESH_SECONDS) > 0
    assert Tickets(KEY).waited(signed(), "run-1", "alice", NOW + FRESH_SECONDS + 1) == 0


def test_a_clock_that_was_set_back_makes_nobody_wait_less_than_nothing() -> None:
    assert Tickets(KEY).waited(signed(), "run-1", "alice", NOW - 2 * DAY) == 0
