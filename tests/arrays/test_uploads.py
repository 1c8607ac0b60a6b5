"""Large arrays that are sent twice: on a slow link the node copies the first one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers.array_session import session

from arrays.test_session import Plain, put, read
from rgpu_client.arrays import uploads
from rgpu_client.arrays.issuer import Issuer
from rgpu_client.arrays.uploads import LEAST_BYTES, MISSES, MOST, SLOW, Uploads
from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays import engine

SIZE = LEAST_BYTES // 8
A, V = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]


def numbers(seed: int = 0) -> Any:
    return np.random.default_rng(seed).random(SIZE)


def octets(array: Any) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    """A session whose link counts as slow, however fast this machine is."""
    monkeypatch.setattr(uploads, "SLOW", float("inf"))
    with session(Plain()) as made:
        yield made


@pytest.fixture
def sent(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns how many large arrays have been sent."""
    sizes: list[int] = []
    message = issuer._message

    def noted(head: bytes, body: list[memoryview]) -> None:
        sizes.extend(part.nbytes for part in body)
        message(head, body)

    monkeypatch.setattr(issuer, "_message", noted)
    return lambda: sum(size >= LEAST_BYTES for size in sizes)


def test_the_same_elements_are_sent_once(issuer: Issuer, sent: Callable[[], int]) -> None:
    value = numbers()
    first, second = put(issuer, value), put(issuer, value.copy())
    assert sent() == 1
    add = issuer.template("iadd", "iadd", [A, V], {}, 0)
    issuer.run(add, [first, 1], [])
    # They are two arrays.
    assert np.array_equal(read(issuer, first), value + 1)
    assert np.array_equal(read(issuer, second), value)
    # The newest is looked at, so this is found although the first one has changed.
    assert np.array_equal(read(issuer, put(issuer, value)), value)
    assert sent() == 1


class Noting:
    """A gate that knows whether the session has its turn, and what happened outside of it."""

    def __init__(self) -> None:
        self.turn = False
        self.done: dict[str, bool] = {}

    def enter(self) -> None:
        self.turn = True

    def leave(self) -> None:
        self.turn = False

    def note(self, what: str) -> None:
        self.done[what] = self.turn


class Noted(Plain):
    """A library, and a hash, that say when they do what takes as long as an array is large."""

    def __init__(self, gate: Noting) -> None:
        super().__init__()
        self._gate = gate

    def elements(self, value: Any) -> Any:
        self._gate.note("read")
        return super().elements(value)

    def made(self, value: Any) -> Any:
        self._gate.note("keep")
        return super().made(value)

    def sha256(self, data: Any) -> Any:
        self._gate.note("hash")
        return hashlib.sha256(data)


def test_a_copy_on_the_node_is_the_leases_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no turn would compute by it: each copy hashes an array, and makes one."""
    monkeypatch.setattr(uploads, "SLOW", float("inf"))
    gate = Noting()
    library = Noted(gate)
    monkeypatch.setattr(engine, "hashlib", library)
    with session(library, gate=gate) as issuer:
        value = numbers()
        first = put(issuer, value)
        issuer.sync()
        assert gate.done == {"keep": True}
        gate.done.clear()
        second = put(issuer, value)
        issuer.sync()
        assert gate.done == {"read": True, "hash": True, "keep": True}
        assert first != second
        assert not gate.turn


def test_what_has_changed_on_the_node_is_sent_again(
    issuer: Issuer, sent: Callable[[], int]
) -> None:
    value = numbers()
    first = put(issuer, value)
    add = issuer.template("iadd", "iadd", [A, V], {}, 0)
    issuer.run(add, [first, 1], [])
    assert np.array_equal(read(issuer, put(issuer, value)), value)
    assert sent() == 2


def test_what_was_freed_or_has_failed_is_sent_again(
    issuer: Issuer, sent: Callable[[], int]
) -> None:
    value = numbers()
    issuer.free(put(issuer, value))
    second = put(issuer, value)
    assert sent() == 2
    fail = issuer.template("ifail", "ifail", [A, V], {}, 0)
    issuer.run(fail, [second, 1], [])
    with pytest.raises(RuntimeError, match="does not work"):
        issuer.sync()
    assert np.array_equal(read(issuer, put(issuer, value)), value)
    assert sent() == 3


def test_a_difference_anywhere_is_seen(issuer: Issuer, sent: Callable[[], int]) -> None:
    value = numbers()
    put(issuer, value)
    for number in range(MISSES + 2):
        value[1000 + number] += 1
        assert np.array_equal(read(issuer, put(issuer, value)), value)
        assert sent() == 2 + number


def test_other_shapes_and_dtypes_are_other_arrays(issuer: Issuer, sent: Callable[[], int]) -> None:
    value = np.zeros(SIZE)
    put(issuer, value)
    put(issuer, value.reshape(2, -1))
    put(issuer, value.view(np.int64))
    assert sent() == 3


def test_who_guesses_wrong_guesses_no_more() -> None:
    some = Uploads()
    data = octets(np.zeros(SIZE))
    for _ in range(MISSES):
        assert some.like("float64", [SIZE], data) is not None
        some.guessed(False)
    assert some.like("float64", [SIZE], data) is None


def test_a_right_guess_forgives_wrong_ones() -> None:
    some = Uploads()
    for right in [False] * (MISSES - 1) + [True] + [False] * (MISSES - 1):
        some.guessed(right)
    assert some.like("float64", [SIZE], octets(np.zeros(SIZE))) is not None


def test_a_fast_link_sends_everything() -> None:
    some = Uploads()
    data = octets(np.zeros(SIZE))
    likeness = some.like("float64", [SIZE], data)
    assert likeness is not None
    some.sent(likeness, 1, SLOW, 0.99)
    assert some.find(likeness) is None
    assert some.like("float64", [SIZE], data) is None


def test_small_arrays_are_always_sent() -> None:
    assert Uploads().like("uint8", [10], octets(np.zeros(10))) is None


def test_what_is_remembered_is_bounded() -> None:
    some = Uploads()
    names = [some.like(f"dtype{n}", [SIZE], octets(np.zeros(SIZE))) for n in range(MOST + 1)]
    for number, likeness in enumerate(names):
        some.sent(likeness, number, SIZE, 1.0)
    assert names[0] is not None
    assert names[1] is not None
    assert some.find(names[0]) is None
    assert some.find(names[1]) == 1
