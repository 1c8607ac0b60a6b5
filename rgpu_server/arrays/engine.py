"""Executes a session's operations in order, and answers its questions."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgpack

from rgpu_common.arrays.messages import (
    ANSWER,
    MOST_BODY_BYTES,
    MOST_DIMENSIONS,
    MOST_HEAD_BYTES,
    MOST_ID,
    MOST_ITEMS,
    MOST_OBJECTS,
    OPERATIONS,
    Failure,
    Op,
    Tag,
)
from rgpu_common.texts import without_addresses
from rgpu_common.wire.frame import Kind
from rgpu_server.arrays.definitions import Definitions, Poison
from rgpu_server.arrays.forms import check, check_id, flat, unpacked
from rgpu_server.arrays.library import CHANGED
from rgpu_server.arrays.templates import MalformedError, Template

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rgpu_common.arrays.line import Line, Message
    from rgpu_server.arrays.library import Library

_OK, _FAILED = 0, 1
_MOST_TEXT = 4096
# How the names of exceptions end that say that there is no memory.
_NO_MEMORY = "MemoryError"


class Gate(Protocol):
    """The right to compute, which a lease gets by turns."""

    def enter(self) -> None:
        """Waits until the session may compute. Called before each operation, so it is quick while
        the session may go on.
        """

    def leave(self) -> None:
        """Nothing is left to compute for now."""


class _FailedError(Exception):
    """An operation cannot be executed, or a question not be answered.

    inherited: the operation was given what another one should have made, and was not begun.
    untouched: it has changed nothing.
    """

    def __init__(
        self, failure: Failure, *, inherited: bool = False, untouched: bool = False
    ) -> None:
        super().__init__(failure.text)
        self.failure = failure
        self.inherited = inherited
        self.untouched = untouched or inherited


class Engine:
    """A session's objects and templates. `serve` runs until the client has gone."""

    def __init__(self, line: Line, library: Library, gate: Gate) -> None:
        self._line = line
        self._library = library
        self._gate = gate
        self._objects: dict[int, Any] = {}
        self._templates = Definitions(library, self._failure)
        self._number = 0
        # The first failure since the program was told of one. The program goes on as if nothing had
        # failed, so what it issues that changes arrays or generators is left out until it knows.
        self._unseen: Failure | None = None
        # The same, once such a change has failed or was not executed: every value that the
        # program reads would show old elements.
        self._untold: Failure | None = None
        self._left = 0
        # How many values the lists have that are kept under ids.
        self._parts = 0
        # For how many ns the session's operations have been worked on, and since when it is so.
        self._worked = 0
        self._since = 0
        self._do: dict[int, Callable[..., None]] = {
            Op.DEFINE: self._define,
            Op.RUN: self._run,
            Op.PUT: self._put,
            Op.FREE: self._free,
            Op.READ: self._read,
            Op.DESCRIBE: self._describe,
            Op.SYNC: self._sync,
            Op.FORGET: self._forget,
            Op.ASK: self._ask,
            Op.COPY: self._copy,
            Op.MARK: self._mark,
        }

    def serve(self) -> None:
        """Executes messages.

        Raises:
            LineError: the client has gone.
            MalformedError: it sent what no correct client sends.
        """
        while True:
            self.execute(self._line.next())

    def execute(self, message: Message) -> None:
        """Executes one message, whose body is still on the line. Errors as `serve`."""
        check(message.kind is Kind.COMMAND and message.opcode == OPERATIONS, "an unknown frame")
        check(message.body_bytes <= MOST_BODY_BYTES, "a body of a made-up size")
        self._left = message.body_bytes
        self._since = time.monotonic_ns()
        for operation in unpacked(message.head):
            check(isinstance(operation, list) and bool(operation), "an operation that is no list")
            do = self._do.get(operation[0]) if type(operation[0]) is int else None
            if do is None:
                raise MalformedError("an unknown operation")
            check(len(operation) == _LENGTHS[operation[0]], "an operation of the wrong length")
            do(*operation[1:])
        check(self._left == 0, "a body that no operation takes")
        self._pause()
        self._gate.leave()

    # Operations

    def _define(self, *definition: Any) -> None:
        self._number += 1
        # To prepare a template may take as long as to run it, and a client can send nothing else.
        self._gate.enter()
        self._templates.define(*definition)

    def _forget(self, number: Any) -> None:
        self._templates.forget(number)

    def _run(self, number: Any, slots: Any, ids: Any) -> None:
        self._number += 1
        template = self._templates.find(number)
        check(isinstance(slots, list) and isinstance(ids, list), "a run of the wrong form")
        check(len(ids) <= MOST_ITEMS, "too many results")
        for one in ids:
            self._check_new(one)
        check(len(ids) < 2 or len(set(ids)) == len(ids), "two results with one id")
        if self._unseen is not None and self._skipped(template, ids, self._unseen):
            return
        try:
            if isinstance(template, Poison):
                raise _FailedError(template.failure)
            self._execute(template, slots, ids)
        except _FailedError as failed:
            self._poison(template, slots, ids, failed)

    def _skipped(self, template: Any, ids: Sequence[int], failure: Failure) -> bool:
        """Leaves out an operation behind a failure that the program does not know of, as if the
        failure had been raised where it happened. Returns False if the operation is to be executed.

        A change in place is left out, and so is a draw of random numbers, so that who tries again
        draws the same ones. Behind one that was left out, so is whatever reads elements.
        """
        if isinstance(template, Template):
            changes = template.changes or not ids
            if not template.operation.reads:
                return False
            if not changes and (self._untold is None or not template.takes_objects):
                return False
            if changes:
                self._untold = self._untold or failure
        elif not ids:
            self._untold = self._untold or failure
        poison = Poison(failure)
        for one in ids:
            self._spoil(one, poison)
        return True

    def _execute(self, template: Template, slots: Sequence[Any], ids: Sequence[int]) -> None:
        check(len(slots) == len(template.slots), "a run with another number of values")
        # To make the values is work, too: there may be many scalars in front of one that is wrong.
        self._gate.enter()
        values = [self._value(*pair) for pair in zip(template.slots, slots, strict=True)]
        try:
            results = flat(template.call(values), template.outputs)
            if len(results) != len(ids):
                raise ValueError(
                    f"{template.name} has {len(results)} results, and the client expects "
                    f"{len(ids)}: install the same release of the library on both sides"
                )
            for one, result in zip(ids, results, strict=True):
                if result is not None:
                    self._hold(one, self._library.keep(result))
        except Exception as error:
            # Who gets no memory has changed nothing yet, or says so.
            full = type(error).__name__.endswith(_NO_MEMORY)
            untouched = full and not getattr(error, CHANGED, False)
            failure = self._failure(error, template.name)
            raise _FailedError(failure, untouched=untouched) from None

    def _hold(self, one: int, value: Any) -> None:
        """Keeps a result. Raises MemoryError: the session would keep too many values in lists."""
        parts = _parts(value)
        if parts and len(self._objects) + self._parts + parts > MOST_OBJECTS:
            self._library.gone(value)
            raise MemoryError(
                f"a result of {parts} values is too much for this session, which may keep "
                f"{MOST_OBJECTS} in all; free some, or make fewer at a time"
            )
        self._parts += parts
        self._objects[one] = value

    def _poison(
        self, template: Any, slots: Sequence[Any], ids: Sequence[int], failed: _FailedError
    ) -> None:
        failure = failed.failure
        poison = Poison(failure)
        for one in ids:
            self._spoil(one, poison)
        changed = template.changed if isinstance(template, Template) else ()
        for at in () if failed.untouched else changed:
            # The values behind the one that failed have not been looked at.
            if at < len(slots) and type(slots[at]) is int and slots[at] in self._objects:
                self._spoil(slots[at], poison)
        left_out = failed.inherited and isinstance(template, Template) and template.changes
        if changed or left_out or not ids:
            self._untold = self._untold or failure
        elif failed.inherited:
            return
        self._unseen = self._unseen or failure

    def _spoil(self, one: int, poison: Poison) -> None:
        """Puts poison in the place of a result, or of what an operation should have changed."""
        before = self._objects.get(one)
        self._objects[one] = poison
        if before is not None:
            self._gone(before)

    def _gone(self, value: Any) -> None:
        """A value is not kept under an id any more."""
        if not isinstance(value, Poison):
            self._parts -= _parts(value)
            self._library.gone(value)

    def _put(self, made: Any, dtype: Any, shape: Any, size: Any) -> None:
        self._number += 1
        self._check_new(made)
        check(type(size) is int and 0 <= size <= self._left, "an upload without its elements")
        _check_form(dtype, shape)
        self._left -= size
        # The elements may be long in coming; another lease may compute meanwhile.
        self._gate.leave()
        self._pause()
        try:
            value, buffer = self._library.make(dtype, shape)
        except Exception as error:
            self._line.skip(size)
            self._since = time.monotonic_ns()
            failure = self._failure(error, "an upload")
            self._objects[made] = Poison(failure)
            self._unseen = self._unseen or failure
            return
        check(buffer.nbytes == size, "an upload of another size than its shape")
        self._line.read_into(buffer)
        self._since = time.monotonic_ns()
        try:
            # On a GPU this is a copy, which the device does.
            self._objects[made] = self._asked(lambda: self._library.made(value))
        except _FailedError as failed:
            self._objects[made] = Poison(failed.failure)
            self._unseen = self._unseen or failed.failure

    def _free(self, ids: Any) -> None:
        check(isinstance(ids, list), "a list of ids that is none")
        for one in ids:
            check(type(one) is int and one in self._objects, "an unknown object")
            self._gone(self._objects.pop(one))

    def _copy(
        self, request: Any, made: Any, source: Any, dtype: Any, shape: Any, digest: Any
    ) -> None:
        check_id(request)
        self._check_new(made)
        check_id(source)
        _check_form(dtype, shape)
        check(isinstance(digest, bytes), "a digest that is none")
        there = self._objects.get(source)
        found = there is not None and not isinstance(there, Poison)
        if found and (copied := self._same(there, dtype, shape, digest)) is not None:
            self._objects[made] = copied
        self._answer([request, _OK, made in self._objects])

    def _same(self, source: Any, dtype: str, shape: list[int], digest: bytes) -> Any:
        """Returns a copy of an object that has these elements; None: it has others, or there is no
        room. The client then sends them.

        The lease needs its turn, and pays, for all of it: to read and to copy a large array takes
        as long as an operation on it.
        """
        try:
            return self._asked(lambda: self._copied(source, dtype, shape, digest))
        except _FailedError:
            return None

    def _copied(self, source: Any, dtype: str, shape: list[int], digest: bytes) -> Any:
        held = self._library.elements(source)
        if (held[0], list(held[1])) != (dtype, shape):
            return None
        if hashlib.sha256(held[2]).digest() != digest:
            return None
        value, buffer = self._library.make(dtype, shape)
        buffer[:] = held[2]
        return self._library.made(value)

    # Questions

    def _read(self, request: Any, wanted: Any) -> None:
        check_id(request)
        try:
            value = self._good(wanted)
            dtype, shape, elements = self._asked(lambda: self._library.elements(value))
        except _FailedError as failed:
            self._refuse(request, failed.failure)
        else:
            self._answer([request, _OK, dtype, list(shape)], [elements])

    def _describe(self, request: Any, wanted: Any) -> None:
        check_id(request)
        check(isinstance(wanted, list), "a list of ids that is none")
        try:
            values = [self._good(one) for one in wanted]
            told = self._asked(lambda: [self._library.describe(value) for value in values])
        except _FailedError as failed:
            self._refuse(request, failed.failure)
        else:
            self._answer([request, _OK, told])

    def _sync(self, request: Any) -> None:
        check_id(request)
        try:
            self._tell(self._untold or self._unseen)
            self._asked(self._library.sync)
        except _FailedError as failed:
            self._refuse(request, failed.failure)
        else:
            self._answer([request, _OK])

    def _ask(self, request: Any, question: Any, details: Any) -> None:
        check_id(request)
        check(isinstance(question, str) and isinstance(details, list), "a question of no form")
        try:
            told = self._asked(lambda: self._library.answer(question, details))
        except _FailedError as failed:
            self._refuse(request, failed.failure)
        else:
            self._answer([request, _OK, told])

    def _mark(self, request: Any, size: Any, beside: Any) -> None:
        check_id(request)
        for one in (size, beside):
            check(type(one) is int and 0 <= one <= MOST_ID, "an impossible size")
        self._pause()
        try:
            if size:
                # What has failed before may be why there is no room.
                self._tell(self._untold or self._unseen)
                # The library may wait for memory; another lease may compute meanwhile.
                self._gate.leave()
            room = self._roomy(size, beside)
        except _FailedError as failed:
            self._refuse(request, failed.failure)
        else:
            # The wait was no work of the session's operations.
            self._since = time.monotonic_ns()
            self._answer([request, _OK, self._worked, room])

    def _roomy(self, size: int, beside: int) -> int:
        try:
            return self._library.room(size, beside)
        except Exception as error:
            raise _FailedError(self._failure(error, "")) from None

    # Helpers

    def _pause(self) -> None:
        """Counts the time until now as work for the session's operations."""
        now = time.monotonic_ns()
        self._worked += now - self._since
        self._since = now

    def _asked(self, call: Any) -> Any:
        self._gate.enter()
        try:
            return call()
        except Exception as error:
            raise _FailedError(self._failure(error, "")) from None

    def _answer(self, answer: list[Any], body: Sequence[memoryview] = ()) -> None:
        # The answer may wait for the client to read; another lease may compute meanwhile.
        self._gate.leave()
        self._pause()
        try:
            head = msgpack.packb(answer)
        except Exception as error:
            # Text that is no Unicode, or a number of more than 64 bits.
            self._refuse_answer(answer[0], f"an answer cannot be sent: {ascii(str(error))[:200]}")
            return
        if len(head) > MOST_HEAD_BYTES:
            text = f"an answer of {len(head)} bytes is longer than {MOST_HEAD_BYTES}"
            self._refuse_answer(answer[0], text)
            return
        self._line.send(Kind.REPLY, ANSWER, head, body)
        self._since = time.monotonic_ns()

    def _refuse_answer(self, request: int, text: str) -> None:
        failure = Failure("builtins.ValueError", text)
        head = msgpack.packb([request, _FAILED, failure.packed()])
        self._line.send(Kind.REPLY, ANSWER, head)

    def _refuse(self, request: int, failure: Failure) -> None:
        self._answer([request, _FAILED, failure.packed()])

    def _tell(self, failure: Failure | None) -> None:
        """Raises a failure, if there is one, for the program to know of. With it the program knows
        of all that came behind: it has issued that before it knew.
        """
        if failure is None:
            return
        if self._unseen is not None and failure.number >= self._unseen.number:
            self._unseen = None
        if self._untold is not None and failure.number >= self._untold.number:
            self._untold = None
        raise _FailedError(failure)

    def _good(self, wanted: Any) -> Any:
        """Returns an object that is read. A failed change that nobody was told of comes first."""
        value = self._known(wanted)
        self._tell(self._untold)
        if isinstance(value, Poison):
            self._tell(value.failure)
        return value

    def _value(self, slot: Any, given: Any) -> Any:
        """Returns what a slot gets. Raises MalformedError, or _FailedError for poison."""
        if slot.kind == Tag.SLOT_OBJECT:
            value = self._known(given)
            if isinstance(value, Poison):
                raise _FailedError(value.failure, inherited=True)
            return value
        complex_scalar = slot.kind == Tag.SLOT_SCALAR and isinstance(given, list)
        if slot.kind == Tag.SLOT_COMPLEX or complex_scalar:
            check(isinstance(given, list) and len(given) == 2, "a complex number of no form")
            check(all(isinstance(x, int | float) for x in given), "a complex number of no form")
            number = complex(*given)
            return self._scalar(slot.dtype, number) if complex_scalar else number
        check(given is None or isinstance(given, bool | int | float | str), "a wrong value")
        return self._scalar(slot.dtype, given) if slot.kind == Tag.SLOT_SCALAR else given

    def _scalar(self, dtype: str, value: Any) -> Any:
        try:
            return self._library.scalar(dtype, value)
        except Exception as error:
            raise _FailedError(self._failure(error, "a scalar")) from None

    def _known(self, one: Any) -> Any:
        check(type(one) is int and one in self._objects, "an unknown object")
        return self._objects[one]

    def _check_new(self, one: Any) -> None:
        check_id(one)
        check(one not in self._objects, "an id that is taken")
        check(len(self._objects) < MOST_OBJECTS, "too many objects")

    def _failure(self, error: Exception, name: str) -> Failure:
        kind = type(error)
        text = without_addresses(self._library.words(error))
        return Failure(
            f"{kind.__module__}.{kind.__qualname__}", text[:_MOST_TEXT], self._number, name
        )


_LENGTHS = {
    Op.DEFINE: 6, Op.RUN: 4, Op.PUT: 5, Op.FREE: 2, Op.READ: 3, Op.DESCRIBE: 3, Op.SYNC: 2,
    Op.FORGET: 2, Op.ASK: 4, Op.COPY: 7, Op.MARK: 4,
}  # fmt: skip


def _parts(value: Any) -> int:
    """Returns how many values a list has, with those of the lists in it; 0 for another value."""
    if not isinstance(value, tuple | list):
        return 0
    return len(value) + sum(map(_parts, value))


def _check_form(dtype: Any, shape: Any) -> None:
    """Checks what is said of an array's elements. Raises MalformedError."""
    check(isinstance(dtype, str) and isinstance(shape, list), "an upload of the wrong form")
    check(len(shape) <= MOST_DIMENSIONS, "an upload of too many dimensions")
    check(all(type(n) is int and 0 <= n <= MOST_ID for n in shape), "an impossible shape")
