"""How far a program is ahead of the node: in time, and in the memory of the lease."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.array_session import Served, session

from arrays.test_session import CALLS, A, Plain, V, put, read, run
from rgpu_client.arrays.ahead import AHEAD_NS, Mark, Pace, Template
from rgpu_client.arrays.issuer import Issuer
from rgpu_common.arrays.messages import Failure, Op, Tag
from rgpu_server.arrays import engine
from rgpu_server.arrays.library import Operation

LEASE_BYTES = 1000
ARRAY_BYTES = 80
WORK_SECONDS = 0.005


class Slow(Plain):
    """Its operation `work` is done only while the client waits, and notes how many were issued
    until then. A clock of its own says how long it has taken.
    """

    def __init__(self) -> None:
        super().__init__()
        self.issuer: Issuer | None = None
        self.ahead: list[int] = []
        self.client_waits = threading.Event()
        self.now = 0

    def monotonic_ns(self) -> int:
        return self.now

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        return Operation(self._work) if operation == "work" else CALLS[operation]

    def _work(self, seconds: float) -> None:
        assert self.issuer is not None
        assert self.client_waits.wait(30)
        self.now += round(seconds * 1e9)
        self.ahead.append(self.issuer.waiting[1])


def leads(
    library: Slow,
    seconds: Sequence[float],
    patch: pytest.MonkeyPatch,
    kind: Callable[[int], int] = lambda at: 0,
) -> list[int]:
    """Issues operations that take so long; returns how many were issued beyond each as it ended.
    kind: which template each is a run of.
    """
    patch.setattr(engine, "time", library)
    with session(library) as issuer:
        library.issuer = issuer
        answer = issuer._answer

        def waiting(request: int) -> Any:
            library.client_waits.set()
            try:
                return answer(request)
            finally:
                library.client_waits.clear()

        patch.setattr(issuer, "_answer", waiting)
        kinds = {kind(at) for at in range(len(seconds))}
        templates = {one: issuer.template(one, "work", [V], {}, 0) for one in sorted(kinds)}
        for at, one in enumerate(seconds):
            issuer.run(templates[kind(at)], [one], ())
        issuer.sync()
        library.client_waits.set()
    # Each definition counts as one.
    return [issued - len(templates) - done for done, issued in enumerate(library.ahead, 1)]


def test_a_program_is_never_far_ahead_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    found = leads(Slow(), [WORK_SECONDS] * 500, monkeypatch)
    assert len(found) == 500
    # As many as take a quarter of a second, and a message.
    assert max(found) <= AHEAD_NS / 1e9 / WORK_SECONDS + 8


def test_long_operations_behind_many_short_ones_are_found_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    short, long = WORK_SECONDS / 5, WORK_SECONDS * 4
    found = leads(Slow(), [short] * 2000 + [long] * 1000, monkeypatch)
    assert len(found) == 3000
    # As many short ones as take a quarter of a second. Once the long ones have been measured, as
    # many of them.
    assert max(found) <= AHEAD_NS / 1e9 / short + 8
    assert max(found[-500:]) <= AHEAD_NS / 1e9 / long + 8


def test_an_operation_that_takes_longer_than_a_program_may_be_ahead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = leads(Slow(), [AHEAD_NS / 1e9 * 1.2] * 6, monkeypatch)
    # Three leave before the first is measured, and then one while another one is worked on.
    assert found[0] == 2
    assert max(found[1:]) <= 1
    assert found[-1] == 0


def test_a_long_operation_that_comes_after_short_ones_is_measured_before_many_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is a message: what the short ones before it have taken is not taken for its own."""
    long = AHEAD_NS / 1e9 * 2
    found = leads(Slow(), [0.0] * 300 + [long] * 20, monkeypatch, lambda at: at // 300)
    assert max(found[300:]) <= 2


def test_long_operations_of_many_kinds_are_not_far_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    long = AHEAD_NS / 1e9 * 2
    found = leads(Slow(), [long] * 40, monkeypatch, lambda at: at)
    assert found[0] <= 5
    # Others are taken for what the last one has taken.
    assert max(found[6:]) <= 1


def test_long_operations_of_many_kinds_after_short_ones_are_bounded_in_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = [0.0] * 20 + [AHEAD_NS / 1e9 * 2] * 300
    found = leads(Slow(), times, monkeypatch, lambda at: at)
    assert max(found) <= 64 + 8
    assert max(found[100:]) <= 1


def paced(kinds: int) -> tuple[Pace, list[Mark]]:
    """A pace at which a run of each of so many new kinds was sent, one for each ns."""
    pace, marks = Pace(), []
    # The first is known to be short, so that the others are taken for short ones.
    for at in range(kinds):
        assert pace.add([(Op.RUN, Template(at), (), ())])
        marks.append(Mark(at, at, *pace.mark(), 0))
        if at == 0:
            pace.answered(marks.pop(0), 1000)
    return pace, marks


def test_what_is_new_is_not_followed_for_long_before_the_node_answers() -> None:
    pace, marks = paced(10)
    assert not pace.behind(marks[0], AHEAD_NS)
    assert pace.behind(marks[0], AHEAD_NS + marks[0].sent_ns + 1)
    for one in marks:
        pace.answered(one, 2000)
    # Nothing that is under way is new: its time is known, and a slow line costs nothing.
    assert not pace.add([(Op.RUN, marks[0].runs[0], (), ())])
    assert not pace.behind(Mark(0, 0, *pace.mark(), 0), 1 << 60)


def test_many_kinds_of_short_operations_cost_few_round_trips() -> None:
    """As in the first step of training: 300 kinds, all of them new, each once. What is answered is
    heard only where the client waits, and then all that has been answered meanwhile.
    """
    pace, under_way, waits, worked = Pace(), [], 0, 0
    for at in range(300):
        pace.add([(Op.RUN, Template(at), (), ())])
        under_way.append(Mark(at, 0, *pace.mark(), 0))
        if len(under_way) > 1 and pace.behind(under_way[0], 0):
            waits += 1
            for one in under_way[:-1]:
                worked += 1000
                pace.answered(one, worked)
            del under_way[:-1]
    assert waits <= 6


def test_a_worker_of_an_earlier_release_gets_no_marks() -> None:
    library = Plain()
    served = Served(library)
    del served.engine._do[Op.MARK]
    issuer = Issuer(served.line, marks=False)
    a = put(issuer, np.ones(2))
    for _ in range(500):
        run(issuer, "add", [a, a])
    assert read(issuer, a).tolist() == [1, 1]
    issuer.close()
    served.join()
    assert not served.broken


class FullMemoryError(MemoryError):
    """The lease is full."""


class Leased(Plain):
    """Charges the bytes of arrays. An operation `scratch` needs as much as its result once more."""

    def __init__(self) -> None:
        super().__init__()
        self.room_left = LEASE_BYTES

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        return Operation(self._scratch) if operation == "scratch" else CALLS[operation]

    def _scratch(self, a: Any) -> Any:
        if self.room_left < 2 * a.nbytes:
            raise FullMemoryError
        return a.copy()

    def keep(self, value: Any) -> Any:
        if value.nbytes > self.room_left:
            raise FullMemoryError
        self.room_left -= value.nbytes
        return super().keep(value)

    def made(self, value: Any) -> Any:
        return self.keep(value)

    def gone(self, value: Any) -> None:
        self.room_left += value.nbytes
        super().gone(value)

    def room(self, size: int, beside: int) -> int:
        if size and size + beside > self.room_left:
            raise FullMemoryError(f"no room for {size}")
        return self.room_left


def raising(failure: Failure) -> BaseException:
    return (
        FullMemoryError(failure.text)
        if "FullMemoryError" in failure.type
        else RuntimeError(failure.text)
    )


@pytest.fixture
def library() -> Leased:
    return Leased()


@pytest.fixture
def issuer(library: Leased) -> Iterator[Issuer]:
    with session(library, raising) as made:
        yield made


def new(issuer: Issuer) -> int:
    """Makes an array of 80 bytes."""
    arguments = [2, [Tag.TUPLE, V], [Tag.DTYPE, "float64"]]
    template = issuer.template("new", "shape", arguments, {}).sized([ARRAY_BYTES])
    made = issuer.new_id()
    issuer.run(template, [10], [made])
    return made


def test_an_allocation_without_room_fails_where_it_is(issuer: Issuer) -> None:
    kept = [new(issuer) for _ in range(LEASE_BYTES // ARRAY_BYTES)]
    for _ in range(3):
        with pytest.raises(FullMemoryError, match="no room for 80"):
            new(issuer)
    issuer.free(kept.pop())
    kept.append(new(issuer))
    with pytest.raises(FullMemoryError):
        put(issuer, np.ones(9))
    # Nothing has failed on the node.
    issuer.sync()
    assert issuer.ask("held") == len(kept) == LEASE_BYTES // ARRAY_BYTES


def test_what_is_freed_is_room_without_a_question(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    new(issuer)
    asked: list[Any] = []
    ask = issuer._ask
    monkeypatch.setattr(issuer, "_ask", lambda *words: asked.append(words) or ask(*words))
    for _ in range(1000):
        issuer.free(new(issuer))
    assert not asked
    issuer.sync()


def test_what_is_claimed_and_not_made_yet_takes_room(issuer: Issuer, library: Leased) -> None:
    a = put(issuer, np.ones(10))
    claimed = [issuer.new_id() for _ in range(11)]
    for one in claimed:
        issuer.claim(one, ARRAY_BYTES)
    # There is room on the node still.
    issuer.sync()
    assert library.room_left == LEASE_BYTES - ARRAY_BYTES
    with pytest.raises(FullMemoryError):
        new(issuer)
    issuer.free(-claimed.pop())
    b = new(issuer)
    issuer.made(claimed[0])
    template = issuer.template("new", "shape", [2, [Tag.TUPLE, V], [Tag.DTYPE, "float64"]], {})
    issuer.run(template, [10], [claimed[0]])
    with pytest.raises(FullMemoryError):
        new(issuer)
    for one in (a, b, claimed[0], *(-other for other in claimed[1:])):
        issuer.free(one)
    assert [new(issuer) for _ in range(LEASE_BYTES // ARRAY_BYTES)]
    issuer.sync()


def test_an_operation_that_needs_more_than_its_results_is_late_once(issuer: Issuer) -> None:
    a = put(issuer, np.ones(50))
    template: Template = issuer.template("scratch", "scratch", [A], {}).sized([400])

    def issue() -> int:
        made = issuer.new_id()
        issuer.run(template, [a], [made])
        return made

    late = issue()
    with pytest.raises(FullMemoryError):
        read(issuer, late)
    issuer.free(late)
    for _ in range(3):
        with pytest.raises(FullMemoryError):
            issue()
    issuer.free(a)
    a = put(issuer, np.ones(20))
    template = template.sized([160])
    assert read(issuer, issue()).tolist() == [1] * 20
    assert issuer.ask("held") == 2
