"""The audit log: refusals and repeated changes, which cost a caller nothing, do not fill the disk."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rgpu_server.core.failures import Failures
from rgpu_server.observe import audit as audits
from rgpu_server.observe.audit import audit, leave, listen
from rgpu_server.observe.refusals import Refusals, Repeats


class Ear:
    """Hears each event."""

    def __init__(self) -> None:
        self.heard = 0

    def happened(self, event: str, fields: object) -> None:
        self.heard += 1


@pytest.fixture
def ear(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ear]:
    refusals = Refusals()
    refusals._written = Failures(burst=100, per_minute=0.0)
    monkeypatch.setattr(audits, "_refusals", refusals)
    repeats = Repeats()
    repeats._again._written = Failures(burst=100, per_minute=0.0)
    monkeypatch.setattr(audits, "_repeats", repeats)
    made = Ear()
    listen(made)
    yield made
    leave(made)


def written(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    return [json.loads(row.getMessage()) for row in caplog.records if row.name == "rgpu.audit"]


@pytest.mark.parametrize("event", ["page_order_refused", "lease_refused", "claim_refused"])
def test_refusals_of_one_caller_are_written_within_bounds(
    ear: Ear, caplog: pytest.LogCaptureFixture, event: str
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    for number in range(1000):
        audit(event, tenant="alice", sentence=f"no {number}")
    assert len(written(caplog)) == 100
    assert ear.heard == 1000  # what is kept in memory has bounds of its own
    # Another one's refusals are written, and all that was carried out.
    audit(event, tenant="bob", sentence="no")
    audit("lease_granted", tenant="alice")
    *_, refused, granted = written(caplog)
    assert (refused["tenant"], granted["event"]) == ("bob", "lease_granted")


def test_the_next_line_says_how_many_were_left_out(
    ear: Ear, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    refusals = Refusals()
    refusals._written = Failures(burst=2, per_minute=0.0)
    monkeypatch.setattr(audits, "_refusals", refusals)
    for tenant in ("alice",) * 5 + ("bob",) * 2:
        audit("lease_refused", tenant=tenant)
    rows = [(row["tenant"], row.get("left_out")) for row in written(caplog)]
    assert rows == [("alice", None), ("alice", None), ("bob", 3), ("bob", None)]


@pytest.mark.parametrize(
    "event",
    [
        "lease_paused", "lease_resumed", "lease_resized", "lease_revoked", "lease_updated",
        "node_drained", "node_undrained", "page_order_carried_out",
    ],
)  # fmt: skip
def test_changes_in_a_loop_are_written_within_bounds(
    ear: Ear, caplog: pytest.LogCaptureFixture, event: str
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    for _ in range(1000):
        audit(event, lease="lease-1", tenant="alice", by="alice")
    assert len(written(caplog)) == 101
    assert ear.heard == 1000
    # No loop hides the first of another change, of another lease or of another caller.
    for other in (
        {"event": "node_drained" if event != "node_drained" else "lease_paused"},
        {"lease": "lease-2"},
        {"by": "bob"},
    ):
        audit(**{"event": event, "lease": "lease-1", "tenant": "alice", "by": "alice", **other})
    *_, change, lease, caller = written(caplog)
    assert (change["left_out"], lease["lease"], caller["by"]) == (899, "lease-2", "bob")
    # No count is lost, and none is told twice.
    assert sum(int(str(row.get("left_out", 0))) + 1 for row in written(caplog)) == ear.heard


def test_each_lease_has_its_first_change_written_however_many_there_are(
    ear: Ear, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rgpu.audit")
    for number in range(500):
        audit("lease_revoked", lease=f"lease-{number}", tenant="alice", by="ops")
    assert len(written(caplog)) == 500
