"""The array seam's protocol: operations, templates, questions, and errors that come late."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np
import pytest
from helpers.array_session import Served, session

from rgpu_client.arrays.issuer import Issuer, SessionLostError
from rgpu_common.arrays.line import Line
from rgpu_common.arrays.messages import ANSWER, OPERATIONS, UNKNOWN_OUTPUTS, Failure, Op, Tag
from rgpu_common.texts import harmless
from rgpu_common.wire.frame import Kind
from rgpu_server.arrays import engine
from rgpu_server.arrays.library import NotOfferedError, Operation, plain_words

A, V = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]


def fail(*_: Any) -> Any:
    raise ArithmeticError("it does not work")


def fail_wildly(*_: Any) -> Any:
    place = object()
    raise ArithmeticError(f"\x1b]0;owned\x07\x9b31m\u202ered {place!r} 0xff\nnext")


def full(*_: Any) -> Any:
    raise MemoryError("the lease is full")


def iadd(to: Any, what: Any) -> None:
    to += what


CALLS: dict[str, Operation] = {
    "add": Operation(lambda a, b: a + b),
    "iadd": Operation(iadd, changes=(0,)),
    "ifail": Operation(fail, changes=(0,)),
    "fail": Operation(fail),
    "fail wildly": Operation(fail_wildly),
    "fail second": Operation(fail, changes=(1,)),
    "ifull": Operation(full, changes=(0,)),
    "view": Operation(lambda a: a[:], reads=False),
    "split": Operation(lambda a, n: list(np.array_split(a, n))),
    "take": Operation(lambda a, at: a[at]),
    "shape": Operation(lambda like, shape, dtype: np.zeros(shape, dtype)),
}


class Plain:
    """A library of a few functions."""

    name, version = "plain", "1"

    def __init__(self) -> None:
        self.held = 0

    def define(
        self, operation: str, arguments: Sequence[Any], keywords: Mapping[str, Any]
    ) -> Operation:
        if operation not in CALLS:
            raise NotOfferedError(f"there is no operation {operation}")
        return CALLS[operation]

    def dtype(self, name: str) -> Any:
        try:
            return np.dtype(name)
        except TypeError:
            raise NotOfferedError(f"there is no dtype {name}") from None

    def scalar(self, dtype: str, value: Any) -> Any:
        return np.dtype(dtype).type(value)

    def constant(self, kind: str, text: str) -> Any:
        raise NotOfferedError("there are no constants")

    def keep(self, value: Any) -> Any:
        self.held += 1
        return value

    def gone(self, value: Any) -> None:
        self.held -= 1

    def make(self, dtype: str, shape: Sequence[int]) -> tuple[Any, memoryview]:
        made = np.empty(shape, self.dtype(dtype))
        return made, memoryview(made.reshape(-1).view(np.uint8))

    def made(self, value: Any) -> Any:
        self.held += 1
        return value

    def elements(self, value: Any) -> tuple[str, Sequence[int], memoryview]:
        whole = np.ascontiguousarray(value)
        return value.dtype.name, value.shape, memoryview(whole.reshape(-1).view(np.uint8))

    def describe(self, value: Any) -> Any:
        return [value.dtype.name, list(value.shape)]

    def answer(self, question: str, details: Sequence[Any]) -> Any:
        return self.held

    def room(self, size: int, beside: int) -> int:
        return 1 << 60

    def words(self, error: Exception) -> str:
        return plain_words(error)

    def sync(self) -> None:
        pass


def raising(failure: Failure) -> BaseException:
    return (
        ArithmeticError(failure.text)
        if "Arithmetic" in failure.type
        else RuntimeError(failure.text)
    )


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with session(Plain(), raising) as made:
        yield made


def put(issuer: Issuer, value: Any) -> int:
    array, made = np.ascontiguousarray(value), issuer.new_id()
    issuer.put(made, array.dtype.name, array.shape, memoryview(array.reshape(-1).view(np.uint8)))
    return made


def read(issuer: Issuer, wanted: int) -> Any:
    got: list[Any] = []

    def make(dtype: str, shape: Sequence[int]) -> memoryview:
        got.append(np.empty(shape, dtype))
        return memoryview(got[0].reshape(-1).view(np.uint8))

    issuer.read(wanted, make)
    return got[0]


def run(
    issuer: Issuer,
    name: str,
    slots: Sequence[Any],
    arguments: Sequence[Any] = (A, A),
    outputs: int = 1,
) -> int:
    made = issuer.new_id()
    template = issuer.template((name, str(arguments), outputs), name, arguments, {}, outputs)
    issuer.run(template, slots, [made] if outputs else [])
    return made


def test_operations_run_in_order_and_values_are_read(issuer: Issuer) -> None:
    a = put(issuer, np.arange(6.0).reshape(2, 3))
    for _ in range(20):
        a = run(issuer, "add", [a, a])
    assert (read(issuer, a) == np.arange(6.0).reshape(2, 3) * 2**20).all()
    assert issuer.describe([a]) == [["float64", [2, 3]]]


@pytest.mark.parametrize("size", [0, 1, 4095, 1 << 18, (1 << 20) + 7, 5_000_001])
def test_arrays_of_all_sizes_travel(issuer: Issuer, size: int) -> None:
    sent = np.arange(size, dtype=np.uint8)
    assert (read(issuer, put(issuer, sent)) == sent).all()


def test_all_forms_of_arguments(issuer: Issuer) -> None:
    a = put(issuer, np.arange(24).reshape(4, 6))
    index = [Tag.TUPLE, [Tag.SLICE, V, None, 2], [Tag.ELLIPSIS], V]
    part = run(issuer, "take", [a, 1, 3], [A, index])
    assert read(issuer, part).tolist() == [9, 21]
    made = run(issuer, "shape", [a, 2], [A, [Tag.TUPLE, V, 3], [Tag.DTYPE, "complex64"]])
    assert read(issuer, made).dtype == np.complex64
    made = run(issuer, "add", [a, 7], [A, [Tag.SLOT_SCALAR, "int8"]])
    assert read(issuer, made)[0, 0] == 7
    made = run(issuer, "add", [a, [1.0, 2.0]], [A, [Tag.SLOT_COMPLEX]])
    assert read(issuer, made)[0, 1] == 2 + 2j


def test_several_results_get_their_ids(issuer: Issuer) -> None:
    a, ids = put(issuer, np.arange(5)), [issuer.new_id(), issuer.new_id()]
    issuer.run(issuer.template("split", "split", [A, V], {}, 2), [a, 2], ids)
    assert [read(issuer, one).tolist() for one in ids] == [[0, 1, 2], [3, 4]]
    issuer.run(
        issuer.template("split", "split", [A, V], {}, 2),
        [a, 3],
        wrong := [issuer.new_id(), issuer.new_id()],
    )
    with pytest.raises(RuntimeError, match="3 results, and the client expects 2"):
        read(issuer, wrong[0])


def test_a_failure_comes_up_at_the_next_value_that_depends_on_it(issuer: Issuer) -> None:
    a = put(issuer, np.ones(3))
    template, bad = issuer.template("fail", "fail", [A, A], {}), issuer.new_id()
    issuer.run(template, [a, a], [bad])
    line = sys._getframe().f_lineno - 1
    worse = run(issuer, "add", [bad, a])
    assert read(issuer, a).tolist() == [1, 1, 1]
    with pytest.raises(ArithmeticError, match="it does not work") as caught:
        read(issuer, worse)
    assert caught.value.rgpu_site == (__file__, line)  # type: ignore[attr-defined]
    with pytest.raises(ArithmeticError):
        read(issuer, worse)
    assert read(issuer, run(issuer, "add", [a, a])).tolist() == [2, 2, 2]


def test_the_text_of_a_failure_cannot_reach_the_terminal_or_tell_addresses(
    issuer: Issuer,
) -> None:
    a = put(issuer, np.ones(3))
    with pytest.raises(ArithmeticError) as caught:
        read(issuer, run(issuer, "fail wildly", [a, a]))
    text = "?]0;owned??31m?red <object object at 0x...> 0xff\nnext"
    assert str(caught.value) == text


def test_all_that_a_node_sends_is_harmless() -> None:
    wild, tame = "a\x1b[2Jb\tc", "a?[2Jb\tc"
    assert harmless([wild, {wild: (wild, 7, b"\x1b", None)}]) == [
        tame,
        {tame: [tame, 7, b"\x1b", None]},
    ]


def test_a_failed_change_in_place_is_never_read_as_old_elements(issuer: Issuer) -> None:
    a, other = put(issuer, np.ones(3)), put(issuer, np.zeros(1))
    run(issuer, "iadd", [a, a], outputs=0)
    run(issuer, "ifail", [a, a], outputs=0)
    with pytest.raises(ArithmeticError):
        read(issuer, other)
    assert read(issuer, other).tolist() == [0]
    with pytest.raises(ArithmeticError):
        read(issuer, a)


def test_changes_behind_a_failure_that_the_program_does_not_know_of_are_not_executed(
    issuer: Issuer,
) -> None:
    weights = put(issuer, np.ones(3))
    gradient = run(issuer, "fail", [weights, weights])
    # The step goes on, because the program does not know.
    run(issuer, "iadd", [weights, gradient], outputs=0)
    run(issuer, "iadd", [weights, weights], outputs=0)
    after = run(issuer, "add", [weights, weights])
    view = run(issuer, "view", [weights], [A])
    made = run(issuer, "shape", [2, 2], [V, [Tag.TUPLE, V, 3], [Tag.DTYPE, "int8"]])
    with pytest.raises(ArithmeticError, match="it does not work"):
        read(issuer, made)
    # It has been told: the weights are those from before the step, and changes are executed again.
    assert read(issuer, weights).tolist() == read(issuer, view).tolist() == [1, 1, 1]
    assert read(issuer, made).shape == (2, 3)
    # What read elements meanwhile might show old ones.
    with pytest.raises(ArithmeticError):
        read(issuer, after)
    run(issuer, "iadd", [weights, weights], outputs=0)
    assert read(issuer, weights).tolist() == [2, 2, 2]


@pytest.mark.parametrize("told", [False, True])
def test_numbers_behind_a_failure_that_the_program_does_not_know_of_are_not_drawn(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """told: the program has read the failed value before, and draws by it nevertheless."""
    numbers = itertools.count(1)
    draw = Operation(lambda a, b: np.full(1, next(numbers)), draws=True)
    monkeypatch.setitem(CALLS, "draw", draw)
    a = put(issuer, np.ones(3))
    bad = run(issuer, "fail", [a, a])
    if told:
        with pytest.raises(ArithmeticError):
            read(issuer, bad)
    first, second = run(issuer, "draw", [a, bad]), run(issuer, "draw", [a, a])
    # The state of the generator is as old as elements behind a change that was left out.
    with pytest.raises(ArithmeticError):
        read(issuer, a)
    for one in (first, second):
        with pytest.raises(ArithmeticError):
            read(issuer, one)
    assert read(issuer, run(issuer, "draw", [a, a])).tolist() == [1]


def test_a_program_that_blocks_gets_each_failure_from_the_operation_itself() -> None:
    """As under CUDA_LAUNCH_BLOCKING=1."""
    served = Served(Plain())
    issuer = Issuer(served.line, raising, blocking=True)
    a = put(issuer, np.ones(3))
    for name, outputs in (("fail", 1), ("ifail", 0)):
        with pytest.raises(ArithmeticError, match="it does not work") as caught:
            run(issuer, name, [put(issuer, np.ones(3)), a], outputs=outputs)
        assert caught.value.rgpu_site[0] == __file__  # type: ignore[attr-defined]
    run(issuer, "iadd", [a, a], outputs=0)
    assert read(issuer, run(issuer, "add", [a, a])).tolist() == [4, 4, 4]
    issuer.close()
    served.join()
    assert not served.broken


def test_who_waits_for_the_node_is_told_of_a_failure_that_nobody_has_read(issuer: Issuer) -> None:
    a = put(issuer, np.ones(3))
    run(issuer, "fail", [a, a])
    with pytest.raises(ArithmeticError):
        issuer.sync()
    issuer.sync()


@pytest.mark.parametrize("operation", ["iadd", "ifull"])
def test_a_change_that_was_never_begun_spoils_nothing(issuer: Issuer, operation: str) -> None:
    weights = put(issuer, np.ones(3))
    bad = run(issuer, "fail", [weights, weights])
    with pytest.raises(ArithmeticError):
        read(issuer, bad)
    run(issuer, operation, [weights, bad if operation == "iadd" else weights], outputs=0)
    with pytest.raises((ArithmeticError, RuntimeError)):
        read(issuer, weights)
    assert read(issuer, weights).tolist() == [1, 1, 1]


@pytest.mark.parametrize("step", ["make", "made"])
def test_an_upload_without_room_holds_back_changes_as_well(step: str) -> None:
    """There may be no room for the bytes that come, or on the device for what is made of them."""

    class Full(Plain):
        def make(self, dtype: str, shape: Sequence[int]) -> tuple[Any, memoryview]:
            self.check("make", shape)
            return super().make(dtype, shape)

        def made(self, value: Any) -> Any:
            self.check("made", value.shape)
            return super().made(value)

        def check(self, now: str, shape: Sequence[int]) -> None:
            if now == step and shape[0] > 3:
                raise MemoryError("the lease is full")

    with session(Full(), raising) as issuer:
        weights = put(issuer, np.ones(3))
        put(issuer, np.ones(4))
        run(issuer, "iadd", [weights, weights], outputs=0)
        with pytest.raises(RuntimeError, match="the lease is full"):
            read(issuer, weights)
        assert read(issuer, weights).tolist() == [1, 1, 1]


def test_what_is_not_offered_is_refused_by_name(issuer: Issuer) -> None:
    a = put(issuer, np.ones(3))
    with pytest.raises(RuntimeError, match="there is no operation system"):
        read(issuer, run(issuer, "system", [a, a]))
    with pytest.raises(RuntimeError, match="there is no dtype object64"):
        read(issuer, run(issuer, "add", [a, 1], [A, [Tag.SLOT_SCALAR, "object64"]]))


def test_frees_travel_in_order_and_from_any_thread(issuer: Issuer) -> None:
    ids = [put(issuer, np.ones(3)) for _ in range(10)]
    threads = [threading.Thread(target=issuer.free, args=(one,)) for one in ids[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert issuer.ask("held") == 1
    assert read(issuer, ids[0]).tolist() == [1, 1, 1]


def test_more_frees_at_once_than_fit_in_a_message(issuer: Issuer) -> None:
    a = put(issuer, np.ones(1))
    made = [run(issuer, "add", [a, a]) for _ in range(30000)]
    for one in made:
        issuer.free(one)
    assert issuer.ask("held") == 1


def test_what_nothing_follows_is_sent_soon() -> None:
    library = Plain()
    with session(library) as issuer:
        a = put(issuer, np.ones(3))
        run(issuer, "add", [a, a])
        wait_for(lambda: library.held == 2)


def wait_for(condition: Callable[[], bool]) -> None:
    from helpers.waiting import wait_until

    wait_until(condition)


def test_many_threads_share_a_session(issuer: Issuer) -> None:
    sums: list[float] = []

    def work(start: int) -> None:
        a = put(issuer, np.full(3, float(start)))
        for _ in range(50):
            b = run(issuer, "add", [a, a])
            issuer.free(a)
            a = b
            if _ % 10 == 0:
                read(issuer, a)
        sums.append(read(issuer, a)[0] / 2.0**50)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(sums) == [float(n) for n in range(8)]


def test_a_session_of_the_parent_is_refused_in_a_forked_child(issuer: Issuer) -> None:
    a = put(issuer, np.ones(2))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            read(issuer, a)
        except SessionLostError as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert b"was forked" in os.read(reader, 4096)
    os.close(reader)
    os.close(writer)
    assert read(issuer, a).tolist() == [1, 1]


def test_a_lost_session_says_so() -> None:
    served = Served(Plain())
    issuer = Issuer(served.line)
    a = put(issuer, np.ones(2))
    served._line.shutdown()
    with pytest.raises(SessionLostError, match="the session with the GPU node is lost"):
        read(issuer, a)
    with pytest.raises(SessionLostError, match="lost"):
        put(issuer, np.ones(2))
    issuer.close()
    served.join()


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\xc0"


@pytest.mark.parametrize(
    "head",
    [
        b"", b"\xc1", b"\x93\x01", msgpack.packb(3), msgpack.packb([1]), nested(500), nested(900),
        nested(5000), msgpack.packb([1, 1]), msgpack.packb([1, 1, 7]), msgpack.packb([1, 1, ["a", "b"]]),
        msgpack.packb([1, 1, ["a", "b", "c", "d"]]), msgpack.packb([1, 1, ["a", "b", 1e999, "d"]]),
        msgpack.packb([[1], 0, []]), msgpack.packb([{}, 0]), msgpack.packb([1, [], []]),
        msgpack.packb([1, 0]), msgpack.packb([1, 0, 7]), msgpack.packb([1, 0, None]),
    ],
)  # fmt: skip
def test_an_answer_of_no_form_ends_the_session_with_a_sentence(head: bytes) -> None:
    ours, theirs = socket.socketpair()
    node = Line.adopted(theirs.detach())
    issuer = Issuer(Line.adopted(ours.detach()))

    def answer() -> None:
        node.next()
        node.send(Kind.REPLY, ANSWER, head)

    hostile = threading.Thread(target=answer)
    hostile.start()
    with pytest.raises(SessionLostError, match="the session has ended: the server sent"):
        issuer.describe([])
    issuer.close()
    hostile.join(60)
    node.close()


NONSENSE = [
    b"\xc1", b"", msgpack.packb(3), msgpack.packb([3]), msgpack.packb([[]]), msgpack.packb([[99]]),
    msgpack.packb([[Op.RUN, 1, [], []]]), msgpack.packb([[Op.FREE, [1]]]), msgpack.packb([[Op.FREE, 1]]),
    msgpack.packb([[Op.READ, 1, 5]]), msgpack.packb([[Op.READ, -1, 5]]), msgpack.packb([[Op.SYNC]]),
    msgpack.packb([[Op.PUT, 1, "float64", [1 << 62, 1 << 62], 8]]),
    msgpack.packb([[Op.PUT, 1, "float64", [-1], 8]]), msgpack.packb([[Op.PUT, 1, "float64", [1], 8]]),
    msgpack.packb([[Op.DEFINE, 1, "add", [["q"]], {}, 1]]), msgpack.packb([[Op.DEFINE, 0, "add", [], {}, 1]]),
    msgpack.packb([[Op.DEFINE, 1, "add", [[Tag.SLICE, 1]], {}, 1]]),
    msgpack.packb([[Op.DEFINE, 1, "add", [], {}, -2]]), msgpack.packb([[Op.DEFINE, 1, 7, [], {}, 1]]),
    msgpack.packb([[True, 1]]), msgpack.packb([[Op.DEFINE, 1, "add", [A, A], {}, 1], [Op.RUN, 1, [1], [2]]]),
    msgpack.packb([[Op.DEFINE, 1, "add", [A, A], {}, 1], [Op.RUN, 1, [1, True], [2]]]),
    msgpack.packb([[Op.FORGET, []]]), msgpack.packb([[Op.FORGET, {}]]), msgpack.packb([[Op.FORGET, 1]]),
    msgpack.packb([[Op.DEFINE, 1, "fail", [], {}, 2], [Op.RUN, 1, [], [2, 2]]]),
    msgpack.packb([[Op.RUN, [], [], []]]), msgpack.packb([[Op.RUN, 1, {}, []]]), msgpack.packb([[[], 1]]),
    msgpack.packb([[Op.FREE, [[]]]]), msgpack.packb([[Op.DESCRIBE, 1, [{}]]]), msgpack.packb([[Op.ASK, 1, 1, 1]]),
    b"\xdd\xff\xff\xff\xff", b"\x91" * 60000, b"\x91\xd6\xff\x00\x00\x00\x00",
]  # fmt: skip


@pytest.mark.parametrize("head", NONSENSE)
def test_nonsense_ends_the_session_and_nothing_else(head: bytes) -> None:
    served = Served(Plain())
    served.line.send(Kind.COMMAND, OPERATIONS, head)
    served.join()
    assert served.broken
    served.line.close()


def test_deep_arguments_are_refused() -> None:
    served, node = Served(Plain()), [Tag.ELLIPSIS]
    for _ in range(60):
        node = [Tag.LIST, node]  # type: ignore[list-item]
    served.line.send(
        Kind.COMMAND, OPERATIONS, msgpack.packb([[Op.DEFINE, 1, "add", [node], {}, 1]])
    )
    served.join()
    assert "too many parts" in served.broken
    served.line.close()


def test_a_slot_after_a_poisoned_one_may_be_anything() -> None:
    served = Served(Plain())
    operations = [
        [Op.DEFINE, 1, "fail", [], {}, 1],
        [Op.RUN, 1, [], [9]],
        [Op.DEFINE, 2, "fail second", [A, A], {}, 0],
        *([Op.RUN, 2, [9, wrong], []] for wrong in ([], {}, "x", -1, None)),
        [Op.SYNC, 5],
    ]
    served.line.send(Kind.COMMAND, OPERATIONS, msgpack.packb(operations))
    request, failed, failure = msgpack.unpackb(served.line.next().head)
    assert (request, failed, failure[1]) == (5, 1, "it does not work")
    served.line.shutdown()
    served.join()
    served.line.close()


def test_what_failed_is_held_no_more(issuer: Issuer) -> None:
    a, b = put(issuer, np.ones(2)), put(issuer, np.ones(3))
    assert issuer.ask("held") == 2
    run(issuer, "ifail", [a, b], outputs=0)
    # Two results are kept, of which the client expects one.
    with pytest.raises(ArithmeticError):
        issuer.sync()
    assert issuer.ask("held") == 1
    issuer.free(a)
    assert issuer.ask("held") == 1


def test_results_that_are_kept_before_one_fails_are_let_go() -> None:
    class Full(Plain):
        def keep(self, value: Any) -> Any:
            if self.held == 2:
                raise MemoryError("the lease is full")
            return super().keep(value)

    with session(Full(), raising) as issuer:
        a = put(issuer, np.arange(6.0))
        ids = [issuer.new_id() for _ in range(3)]
        template = issuer.template("split", "split", [A, V], {}, 3)
        issuer.run(template, [a, 3], ids)
        with pytest.raises(RuntimeError, match="the lease is full"):
            issuer.describe(ids[:1])
        assert issuer.ask("held") == 1


def test_lists_of_results_are_counted_by_their_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value of a list is an object of the worker's, whose memory no lease is charged for."""
    monkeypatch.setattr(engine, "MOST_OBJECTS", 1000)
    library = Plain()
    with session(library, raising) as issuer:
        whole = put(issuer, np.arange(300.0))
        split = issuer.template("split", "split", [A, V], {}, UNKNOWN_OUTPUTS)
        kept = [issuer.new_id() for _ in range(4)]
        for one in kept:
            issuer.run(split, [whole, 300], [one])
        with pytest.raises(RuntimeError, match="a result of 300 values is too much"):
            read(issuer, kept[3])
        # A refused result is gone, and what is freed makes room.
        assert issuer.ask("held") == 4
        issuer.free(kept[0])
        issuer.run(split, [whole, 300], [last := issuer.new_id()])
        take = issuer.template("take", "take", [A, 7], {}, 1)
        issuer.run(take, [last], [part := issuer.new_id()])
        assert read(issuer, part) == 7
