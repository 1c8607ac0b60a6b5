"""The newest events, as the page shows them: whose they are, their words, their bounds."""

from __future__ import annotations

import pytest

from rgpu_server.observe.audit import audit, leave, listen
from rgpu_server.observe.journal import MOST_ENTRIES, MOST_OF_TENANT, Entry, Journal
from rgpu_server.observe.lease_log import PRINTED


def make_journal() -> Journal:
    return Journal(wall=lambda: 7.0)


def all_of(journal: Journal) -> list[Entry]:
    return list(journal.entries(lambda tenant: True, True))


def test_an_event_of_the_audit_log_is_kept() -> None:
    journal = make_journal()
    listen(journal)
    try:
        audit("claim_refused", tenant="alice", key="job", sentence="no memory is left")
    finally:
        leave(journal)
    (entry,) = all_of(journal)
    sentence = "no memory is left, key job"
    assert entry == Entry(1, 7.0, "claim_refused", "alice", "", 0, sentence)
    assert entry.refusal


def test_later_events_of_a_lease_and_a_session_are_its_tenants() -> None:
    journal = make_journal()
    granted: dict[str, str | float | None] = {"lease": "lease-1", "tenant": "alice", "key": "job"}
    granted["memory_bytes"] = 1 << 30
    journal.happened("lease_granted", granted)
    journal.happened("session_assigned", {"session": 3, "lease": "lease-1"})
    journal.happened("session_ended", {"session": 3, "reason": "it was killed"})
    journal.happened("lease_ended", {"lease": "lease-1", "launches": 2})
    assert {(entry.tenant, entry.lease) for entry in all_of(journal)} == {("alice", "lease-1")}
    assert [entry.session for entry in all_of(journal)] == [0, 3, 3, 0]
    assert all_of(journal)[0].sentence == "granted: 1 GiB of device 0, key 'job'"


def test_a_tenant_sees_its_own_events_and_none_of_the_server() -> None:
    journal = make_journal()
    journal.happened("lease_refused", {"tenant": "alice", "sentence": "too much"})
    journal.happened("lease_refused", {"tenant": "bob", "sentence": "too much"})
    journal.happened("identity_refused", {"sentence": "no such token"})
    seen = journal.entries(lambda tenant: tenant == "bob", False)
    assert [entry.tenant for entry in seen] == ["bob"]
    assert len(all_of(journal)) == 3


def test_an_event_about_a_lease_does_not_make_it_another_tenants() -> None:
    journal = make_journal()
    journal.happened("lease_granted", {"lease": "lease-1", "tenant": "alice"})
    journal.happened("lease_updated", {"lease": "lease-1", "tenant": "ops"})
    journal.happened("lease_ended", {"lease": "lease-1"})
    assert [entry.tenant for entry in all_of(journal)] == ["alice", "ops", "alice"]


def test_a_tenant_does_not_take_the_room_of_others() -> None:
    journal = make_journal()
    journal.happened("lease_refused", {"tenant": "bob", "sentence": "too much"})
    for _ in range(2 * MOST_ENTRIES):
        journal.happened("lease_refused", {"tenant": "alice", "sentence": "too much"})
    assert [entry.tenant for entry in all_of(journal)] == ["bob"] + MOST_OF_TENANT * ["alice"]


def test_tenants_together_do_not_take_the_room_of_others() -> None:
    """Before: four tenants with 256 entries each pushed out all others'."""
    journal = make_journal()
    journal.happened("lease_refused", {"tenant": "bob", "sentence": "too much"})
    journal.happened("identity_refused", {"sentence": "no such token"})
    for number in range(10 * MOST_OF_TENANT):
        journal.happened("lease_refused", {"tenant": f"eve-{number % 10}"})
    kept = all_of(journal)
    assert [entry.tenant for entry in kept[:2]] == ["bob", ""]
    assert len(kept) == MOST_ENTRIES


def test_tenants_with_many_leases_do_not_take_the_names_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before: enough of them had the server forget whose an old lease was."""
    monkeypatch.setattr("rgpu_server.observe.journal._MOST_OWNERS", 64)
    journal = make_journal()
    journal.happened("lease_granted", {"lease": "lease-bob", "tenant": "bob"})
    for number in range(200):
        tenant = f"eve-{number % 10}"
        journal.happened("lease_granted", {"lease": f"lease-{number}", "tenant": tenant})
    journal.happened("lease_ended", {"lease": "lease-bob"})
    assert all_of(journal)[-1].tenant == "bob"


def test_all_entries_are_bounded() -> None:
    journal = make_journal()
    for number in range(MOST_ENTRIES + 5):
        journal.happened("lease_refused", {"tenant": f"tenant-{number}"})
    assert [entry.number for entry in all_of(journal)] == list(range(6, MOST_ENTRIES + 6))


def test_the_text_of_a_client_is_one_line_and_bounded() -> None:
    journal = make_journal()
    journal.happened("lease_refused", {"tenant": "bob", "key": "a\nb" * 1000})
    (entry,) = all_of(journal)
    assert entry.sentence.startswith("key a?ba?b")
    assert len(entry.sentence) == 500


def test_a_line_of_a_worker_is_no_event() -> None:
    journal = make_journal()
    journal.happened(PRINTED, {"worker": 1, "text": "a program printed this"})
    assert all_of(journal) == []
