"""What a claim says of its reservation."""

from __future__ import annotations

from datetime import datetime, timezone
from types import SimpleNamespace as Object

import pytest

from rgpu_cluster.kubernetes.reserved import Bounds, ReservedClaims
from rgpu_cluster.kubernetes.views import is_reserved, reservation_user, reserved_until

NOW = datetime(2026, 11, 27, 12, tzinfo=timezone.utc)


def claim(text: str | None, **status: object) -> Object:
    annotations = None if text is None else {"rgpu.dev/reserve-until": text}
    metadata = Object(annotations=annotations, name="demo", uid="uid-1")
    return Object(metadata=metadata, status=Object(**status) if status else None)


def test_a_time_as_kubernetes_writes_it() -> None:
    for text in ("2026-11-27T18:00:00Z", "2026-11-27T19:00:00+01:00"):
        assert reserved_until(claim(text), NOW) == datetime(2026, 11, 27, 18, tzinfo=timezone.utc)
    for text in (None, ""):
        assert reserved_until(claim(text), NOW) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("tomorrow", "is no time; write it as"),
        ("2026-11-27T18:00:00", "is no time"),
        ("2026-11-27", "is no time"),
        ("x" * 5000, "is no time"),
        ("2027-01-27T18:00:00Z", "more than 30 d away"),
    ],
)
def test_what_is_no_time(text: str, says: str) -> None:
    found = reserved_until(claim(text), NOW)
    assert isinstance(found, str)
    assert says in found
    assert len(found) < 200


def test_whose_entry_it_is() -> None:
    mine = Object(apiGroup="rgpu.dev", resource="reservations")
    pod = Object(apiGroup=None, resource="pods")
    assert is_reserved(claim(None, reservedFor=[pod, mine]))
    assert not is_reserved(claim(None, reservedFor=[pod]))
    assert not is_reserved(claim(None, reservedFor=None))
    assert not is_reserved(claim(None))
    assert reservation_user(claim(None)) == {
        "apiGroup": "rgpu.dev", "resource": "reservations", "name": "demo", "uid": "uid-1",
    }  # fmt: skip


def reserved(name: str, text: str | None = "2026-11-27T18:00:00Z", **more: object) -> Object:
    made = claim(text)
    said = {"namespace": "team-a", "name": name, "uid": f"uid-{name}", "deletionTimestamp": None}
    made.metadata.__dict__.update({**said, "creationTimestamp": name, **more})
    return made


def claims(*some: Object, most: int = 2) -> ReservedClaims:
    found = ReservedClaims(Bounds(most, 86400.0))
    for one in some:
        found.note(("team-a", one.metadata.name), one)
    return found


def test_which_claims_are_to_have_cards_now() -> None:
    over = reserved("over", "2026-11-27T11:59:59Z")
    over.status = Object(reservedFor=None, allocation=Object())
    some = [
        reserved("now"),
        over,
        reserved("none", None),
        reserved("going", deletionTimestamp=NOW),
    ]
    found = claims(*some, most=9)
    assert [found.wants(one, NOW) for one in some] == [True, False, False, False]
    assert sorted(name for _, name in found) == ["going", "now", "over"]
    assert "more than 1 d away" in str(found.wants(reserved("far", "2026-11-29T00:00:00Z"), NOW))
    over.status = None
    assert "2026-11-27T11:59:59Z is past" in str(found.wants(over, NOW))


def test_a_namespace_has_so_many_and_the_oldest_stay() -> None:
    some = [reserved(name) for name in ("1", "2", "3")]
    found = claims(*some)
    assert [found.wants(one, NOW) for one in some[:2]] == [True, True]
    assert "may have 2 reservations" in str(found.wants(some[2], NOW))
    found.note(("team-a", "1"), None)
    assert found.wants(some[2], NOW) is True


def test_one_that_holds_cards_is_looked_at_without_its_word() -> None:
    made = reserved("held", None)
    made.status = Object(reservedFor=[Object(apiGroup="rgpu.dev", resource="reservations")])
    found = claims(made)
    assert ("team-a", "held") in found
    assert found.wants(made, NOW) is False


def test_thousands_of_reservations_are_looked_at_one_by_one() -> None:
    """Whoever makes them must not keep the manager from its other work."""

    count = 3000
    some = [reserved(f"{number:05}") for number in range(count)]
    found = claims(*some)
    assert [found.wants(one, NOW) is True for one in some] == [True, True] + [False] * (count - 2)
    for one in some[: count - 2]:
        found.note(("team-a", one.metadata.name), None)
    assert [found.wants(one, NOW) for one in some[-2:]] == [True, True]


def test_a_reservation_that_changes_keeps_its_rank() -> None:
    some = [reserved(name) for name in ("1", "2", "3")]
    found = claims(*some)
    for _ in range(3):
        for one in some:
            found.note(("team-a", one.metadata.name), one)
    assert [found.wants(one, NOW) is True for one in some] == [True, True, False]
    held = reserved("3")
    held.status = Object(reservedFor=[Object(apiGroup="rgpu.dev", resource="reservations")])
    found.note(("team-a", "3"), held)
    # It has its cards already, so a younger one without cards has to wait.
    assert [found.wants(one, NOW) is True for one in (*some[:2], held)] == [True, False, True]
