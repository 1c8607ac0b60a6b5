"""Messages that no client of ours sends: each ends its session with a sentence, or hurts nobody."""

from __future__ import annotations

import hashlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import msgpack
import numpy as np
import pytest
from helpers.array_session import Served

from arrays.test_session import Plain
from rgpu_common.arrays.line import Line
from rgpu_common.arrays.messages import OPERATIONS, Op, Tag
from rgpu_common.wire.frame import Kind
from rgpu_server.arrays import definitions, engine

A, V = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]


class Strange(Plain):
    """A library whose answers cannot be sent."""

    def answer(self, question: str, details: Any) -> Any:
        return {"surrogate": "\ud800", "long": 1 << 70, "object": object()}[question]

    def words(self, error: Exception) -> str:
        return f"\udcff{error}" if "work" in str(error) else str(error)


@pytest.fixture
def library() -> Plain:
    return Plain()


@pytest.fixture
def served(library: Plain) -> Iterator[Served]:
    one = Served(library)
    yield one
    one.line.shutdown()
    one.join()
    one.line.close()


def send(served: Served, *operations: Any, body: bytes = b"") -> None:
    served.line.send(
        Kind.COMMAND, OPERATIONS, msgpack.packb(list(operations)), [memoryview(body)] if body else []
    )  # fmt: skip


def put(made: int, *elements: float) -> tuple[list[Any], bytes]:
    data = np.array(elements).tobytes()
    return [Op.PUT, made, "float64", [len(elements)], len(data)], data


def answer(served: Served) -> list[Any]:
    message = served.line.next()
    served.line.skip(message.body_bytes)
    return list(msgpack.unpackb(message.head))


@pytest.mark.parametrize(
    "operations",
    [
        [[Op.FORGET, [1]]],
        [[Op.FORGET, {}]],
        [[Op.FORGET, True]],
        [[Op.FORGET, 1.0]],
        [[Op.DEFINE, 1, "add", [], {}, 2], [Op.RUN, 1, [], [5, 5]]],
        [[Op.DEFINE, 1, "add", [], {}, 1], [Op.RUN, 1, [], [[5]]]],
        [[Op.DEFINE, 1, "add", [A], {}, 1], [Op.RUN, 1, [[1]], [5]]],
        [[Op.DEFINE, 1, "add", [A], {}, 1], [Op.RUN, 1, [{}], [5]]],
        [[Op.DEFINE, 1, "add", [V], {}, 1], [Op.RUN, 1, [b"bytes"], [5]]],
        [[Op.DEFINE, 1, "add", [msgpack.ExtType(5, b"x")], {}, 1]],
        [[Op.DEFINE, 1, "add", [msgpack.Timestamp(1)], {}, 1]],
        [msgpack.ExtType(1, b"")],
        msgpack.ExtType(1, b""),
        [[Op.ASK, 1, "held", {}]],
        [[Op.ASK, 1, b"held", []]],
        [[Op.COPY, 1, 2, [3], "int8", [1], b""]],
        [[Op.COPY, 1, 2, 3, 8, [1], b""]],
        [[Op.COPY, 1, 2, 3, "int8", [-1], b""]],
        [[Op.COPY, 1, 2, 3, "int8", [1], "text"]],
        [[Op.COPY, 1, 0, 3, "int8", [1], b""]],
        [[Op.COPY, 0, 2, 3, "int8", [1], b""]],
        [[Op.MARK, 0, 0, 0]],
        [[Op.MARK, 1, -1, 0]],
        [[Op.MARK, 1, True, 0]],
        [[Op.MARK, 1, 1 << 63, 0]],
        [[Op.MARK, 1, 1, []]],
    ],
)  # fmt: skip
def test_wrong_types_end_the_session_with_a_sentence(operations: Any) -> None:
    served = Served(Plain())
    served.line.send(Kind.COMMAND, OPERATIONS, msgpack.packb(operations))
    served.join()
    assert served.broken
    served.line.close()


@pytest.mark.parametrize("deep", [b"\x91" * 60000, b"\x81\xa1a" * 20000, b"\xdd\xff\xff\xff\xff"])
def test_deep_and_long_heads_end_the_session(deep: bytes) -> None:
    served = Served(Plain())
    served.line.send(Kind.COMMAND, OPERATIONS, deep)
    served.join()
    assert "not msgpack" in served.broken
    served.line.close()


def test_what_a_failed_operation_should_have_changed_may_be_no_id(served: Served) -> None:
    """The first value fails, so the second, a list in place of an id, is never looked at."""
    both = [Op.DEFINE, 2, "ifail", [[Tag.TUPLE, [Tag.SLOT_SCALAR, "int8"], A]], {}, 0]
    send(served, both, [Op.RUN, 2, ["text", [1]], []], [Op.SYNC, 9])
    assert answer(served)[:2] == [9, 1]
    send(served, [Op.SYNC, 10])
    assert answer(served) == [10, 0]


def test_a_copy_is_made_of_what_has_the_digest_only(served: Served, library: Plain) -> None:
    operation, data = put(1, 1.0, 2.0)
    right = hashlib.sha256(data).digest()
    send(served, operation, body=data)

    def copied(made: int, source: int, dtype: str, shape: list[int], digest: bytes) -> bool:
        send(served, [Op.COPY, 7, made, source, dtype, shape, digest])
        request, status, told = answer(served)
        assert (request, status) == (7, 0)
        return bool(told)

    assert not copied(2, 99, "float64", [2], right)
    assert not copied(2, 1, "float64", [2], right[:31])
    assert not copied(2, 1, "float64", [2, 1], right)
    assert not copied(2, 1, "int64", [2], right)
    assert not copied(2, 1, "no such", [1 << 62], right)
    assert library.held == 1
    assert copied(2, 1, "float64", [2], right)
    assert library.held == 2
    send(served, [Op.COPY, 7, 2, 1, "float64", [2], right])
    served.join()
    assert "taken" in served.broken


def test_poison_gives_back_what_it_replaces(served: Served, library: Plain) -> None:
    operation, data = put(1, 1.0, 2.0)
    fails = [Op.DEFINE, 1, "ifail", [A, V], {}, 0]
    send(served, operation, fails, [Op.RUN, 1, [1, 0], []], [Op.SYNC, 9], body=data)
    assert answer(served)[1] == 1
    assert library.held == 0
    split = [Op.DEFINE, 2, "split", [A, V], {}, 2]
    operation, data = put(2, 1.0, 2.0)
    send(served, operation, split, [Op.RUN, 2, [2, 3], [11, 12]], [Op.ASK, 9, "", []], body=data)
    assert answer(served) == [9, 0, 1]


@pytest.mark.parametrize("question", ["surrogate", "long", "object"])
def test_an_answer_that_cannot_be_sent_is_an_error_of_the_one_who_asks(question: str) -> None:
    served = Served(Strange())
    send(served, [Op.ASK, 7, question, []])
    request, failed, failure = answer(served)
    assert (request, failed) == (7, 1)
    assert "an answer cannot be sent" in failure[1]
    fails = [Op.DEFINE, 1, "fail", [], {}, 1]
    send(served, fails, [Op.RUN, 1, [], [3]], [Op.DESCRIBE, 8, [3]])
    assert answer(served)[:2] == [8, 1]
    served.line.shutdown()
    served.join()
    served.line.close()


def test_templates_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MOST_PARTS", 1000)
    served = Served(Plain())
    for number in range(1, 4):
        send(served, [Op.DEFINE, number, "add", [[Tag.LIST, *[0] * 400]], {}, 1])
    served.join()
    assert "too many parts" in served.broken
    served.line.close()


def test_forgotten_templates_make_room(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(definitions, "MOST_PARTS", 1000)
    for number in range(1, 10):
        send(served, [Op.DEFINE, number, "add", ["x" * 8000], {}, 1], [Op.FORGET, number])
    # Defining it again takes the place of the one before.
    for _ in range(9):
        send(served, [Op.DEFINE, 1, "add", ["x" * 8000], {}, 1])
    send(served, [Op.SYNC, 1])
    assert answer(served) == [1, 0]


class Counting:
    """A gate that knows whether it is held."""

    def __init__(self) -> None:
        self.held = False
        self.left = threading.Event()

    def enter(self) -> None:
        self.held = True
        self.left.clear()

    def leave(self) -> None:
        self.held = False
        self.left.set()


def test_the_token_is_not_held_while_a_body_is_on_its_way() -> None:
    """A client that computes and then keeps the rest of its message back holds nobody up."""
    ours, theirs = socket.socketpair()
    gate, line = Counting(), Line.adopted(theirs.detach())
    executing = engine.Engine(line, Plain(), gate)
    operation, data = put(2, *range(1 << 20))
    compute = [
        [Op.DEFINE, 1, "shape", [V, [Tag.TUPLE, 2], [Tag.DTYPE, "int8"]], {}, 1],
        [Op.RUN, 1, [0], [1]],
    ]
    client = Line.adopted(ours.detach())
    head = msgpack.packb([*compute, operation])
    sender = threading.Thread(target=client.send, args=(Kind.COMMAND, 1, head, [memoryview(data)]))
    sender.start()
    message = line.next()
    taken = line.read_into
    seen: list[bool] = []

    def read_into(to: memoryview, *rest: Any) -> None:
        seen.append(gate.held)
        taken(to, *rest)

    line.read_into = read_into  # type: ignore[method-assign]
    executing.execute(message)
    sender.join()
    assert seen == [False]
    client.close()
    line.close()


class Gated(Plain):
    """A library that notes whether the session has its turn while it prepares something."""

    def __init__(self, gate: Counting) -> None:
        super().__init__()
        self._gate = gate
        self.seen: list[tuple[str, bool]] = []

    def define(self, *definition: Any) -> Any:
        self.seen.append(("define", self._gate.held))
        return super().define(*definition)

    def scalar(self, dtype: str, value: Any) -> Any:
        self.seen.append(("scalar", self._gate.held))
        return super().scalar(dtype, value)


def test_to_prepare_an_operation_is_the_leases_work() -> None:
    """A client that defines without end, or fills in values of runs that fail, pays for it."""
    ours, theirs = socket.socketpair()
    gate, line = Counting(), Line.adopted(theirs.detach())
    library = Gated(gate)
    executing = engine.Engine(line, library, gate)
    client = Line.adopted(ours.detach())
    scalar = [Tag.SLOT_SCALAR, "float64"]
    defines = [Op.DEFINE, 1, "add", [scalar, scalar], {}, 1]
    for operations in ([defines], [[Op.RUN, 1, [1.0, "x"], [1]]]):
        client.send(Kind.COMMAND, OPERATIONS, msgpack.packb(operations))
        executing.execute(line.next())
        assert not gate.held
    assert library.seen == [("define", True), ("scalar", True), ("scalar", True)]
    client.close()
    line.close()
