"""Who is charged for exported memory, in sequences of what sessions do."""

from __future__ import annotations

import random

import pytest

from rgpu_server.core.exports import MOST_OPEN, Charge, Discharge, Effect, Exports, Release

LEASE = "lease-1"


class Page:
    """The slots of a lease page: applies effects as the broker does, and clears ended sessions."""

    def __init__(self) -> None:
        self.charged: dict[int, int] = {}
        self.released: list[tuple[int, int]] = []

    def apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Charge(session, charged):
                    self.charged[session] = self.charged.get(session, 0) + charged
                case Discharge(session, charged):
                    assert self.charged[session] >= charged
                    self.charged[session] -= charged
                case Release(exporter, number):
                    self.released.append((exporter, number))

    def total(self) -> int:
        return sum(self.charged.values())


def test_the_exporter_hears_of_each_close() -> None:
    exports, page = Exports(), Page()
    exports.opened(LEASE, 1, 7, 100, 2)
    exports.opened(LEASE, 1, 7, 100, 3)
    assert exports.is_open(1, 7, 2)
    assert not exports.is_open(1, 7, 4)
    page.apply(exports.closed(1, 7, 2))
    page.apply(exports.closed(1, 7, 2))  # it has closed it already
    page.apply(exports.closed(1, 8, 3))  # it never opened that one
    page.apply(exports.ended(3))
    assert page.released == [(1, 7), (1, 7)]
    assert page.total() == 0
    assert exports.record(LEASE) == []


def test_the_charge_goes_from_session_to_session() -> None:
    exports, page = Exports(), Page()
    for session in (2, 3, 4):
        exports.opened(LEASE, 1, 7, 100, session)
    page.apply(exports.ended(1))
    assert page.charged == {2: 100}
    page.apply(exports.ended(2))
    del page.charged[2]  # the page clears its slot
    assert page.charged == {3: 100}
    page.apply(exports.closed(1, 7, 4))
    assert page.charged == {3: 100}
    page.apply(exports.closed(1, 7, 3))
    assert page.total() == 0
    assert page.released == []


@pytest.mark.parametrize("seed", range(20))
def test_every_export_is_charged_once(seed: int) -> None:
    """Also across a daemon that starts anew in the middle, and knows only the record."""
    chance = random.Random(seed)
    exports, page = Exports(), Page()
    sessions, ended = set(range(1, 7)), set[int]()
    opened: dict[tuple[int, int], set[int]] = {}
    for _ in range(300):
        exporter, number = chance.choice([(e, n) for e in range(1, 7) for n in (1, 2)])
        key, session = (exporter, number), chance.choice(sorted(sessions))
        if chance.random() < 0.02 and len(sessions) > 1:
            page.apply(exports.ended(session))
            page.charged.pop(session, None)
            sessions.discard(session)
            ended.add(session)
            for holders in opened.values():
                holders.discard(session)
        elif session in opened.get(key, set()):
            page.apply(exports.closed(exporter, number, session))
            opened[key].discard(session)
        elif session != exporter and exporter in sessions:
            exports.opened(LEASE, exporter, number, 1 << (2 * exporter + number), session)
            opened.setdefault(key, set()).add(session)
        if chance.random() < 0.05:
            record = exports.record(LEASE)
            exports = Exports()
            exports.adopt(LEASE, record)
        wanted = sum(1 << (2 * e + n) for (e, n), who in opened.items() if who and e in ended)
        assert page.total() == wanted
        assert not set(page.charged) & ended


def test_a_record_that_cannot_be_read_is_nothing() -> None:
    exports = Exports()
    for record in (None, {}, [1], [[1, 2, 3, 1]], [[1, 2, -3, 1, 5]], [["1", 2, 3, 1, 5]]):
        exports.adopt(LEASE, record)
    assert exports.record(LEASE) == []


def test_a_lease_has_only_so_much_open() -> None:
    exports = Exports()
    for number in range(MOST_OPEN):
        assert exports.has_room(LEASE)
        exports.opened(LEASE, 1, number, 4096, 2)
    assert not exports.has_room(LEASE)
    assert exports.has_room("lease-2")
    assert len(str(exports.record(LEASE))) < 48 << 10  # a message to the token loop holds 64 KiB
