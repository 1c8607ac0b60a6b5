"""Issues operations to the worker of a session, a few at a time, and reads what they computed.

Nothing waits until a value is needed. Operations are sent when there are eight, when the program
asks for a value, or about a millisecond after the last one. What the program frees travels in the
order of the operations, so that the worker can use the memory again at once. Where no operation
follows it is sent within a tenth of a second: other programs of the lease may wait for the memory.
`ahead` says how far the program may be ahead of the node.

An operation that fails poisons its results. The error comes up at the next value that depends on
it, with the type and the text that the library on the node gave it, and the line that issued it.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, NoReturn

import msgpack

from rgpu_client.arrays import forks
from rgpu_client.arrays.ahead import Mark, Pace, Room, Template
from rgpu_client.arrays.flusher import Flusher
from rgpu_client.arrays.progress import Progress
from rgpu_client.arrays.sites import Sites
from rgpu_client.arrays.uploads import Uploads, digest
from rgpu_common.arrays.line import LineError, Woken
from rgpu_common.arrays.messages import ANSWER, MOST_HEAD_BYTES, OPERATIONS, Failure, Op
from rgpu_common.errors import RgpuError
from rgpu_common.texts import harmless
from rgpu_common.wire.frame import Kind, WireError
from rgpu_common.wire.handshake import MAX_SENTENCE_BYTES
from rgpu_common.wire.notices import Notice
from rgpu_common.wire.scalars import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from rgpu_client.arrays.uploads import Likeness
    from rgpu_common.arrays.line import Line, Message

FLUSH_OPERATIONS = 8
# With frees and other small things.
_MOST_UNSENT = 64
# In one operation, which must fit in a head.
_MOST_FREED = 4096
_TEMPLATES = 8192
# Transfers of this size or more show how far they are.
_LARGE_BYTES = 64 << 20
_TEMPLATES_AHEAD = 64
_OK = 0
_LAST_WORDS_MS = 500
# How the names of exceptions end that say that there is no memory.
_NO_MEMORY = "MemoryError"


class SessionLostError(RgpuError, RuntimeError):
    """The session has ended: nothing that it held can be used any more."""


class Issuer:
    """A session's operations. Safe to use from several threads.

    raising: makes the exception for a failure on the node. The default is a RuntimeError. marks:
    whether the worker answers to a MARK; without that a program may be ahead without bound.
    blocking: each operation waits until it is done, and raises its own error.
    """

    def __init__(
        self,
        line: Line,
        raising: Callable[[Failure], BaseException] | None = None,
        *,
        marks: bool = True,
        blocking: bool = False,
    ) -> None:
        self._line = line
        self._raising = raising or (lambda failure: RuntimeError(failure.text))
        self._lock = threading.RLock()
        self._operations: list[Any] = []
        self._body: list[memoryview] = []
        self._bytes = 0
        self._freed: deque[int] = deque()
        # Frees an object behind what was issued before; with a negative id one that was claimed and
        # never made. A garbage collector may call it. It is no method of this class, because each
        # operation frees about one object.
        self.free: Callable[[int], None] = self._freed.append
        self._number = 0
        # Operations but frees that wait to be sent.
        self._unsent = 0
        self._marking = marks
        self._marks: deque[Mark] = deque()
        self._pace, self._room = Pace(), Room(known=marks)
        self._sites, self._uploads = Sites(), Uploads()
        # Returns an id for an object that an operation will make.
        self.new_id: Callable[[], int] = itertools.count(1).__next__
        self._requests = itertools.count(1)
        self._templates: OrderedDict[Hashable, Template] = OrderedDict()
        self._template_ids = itertools.count(1)
        # Templates are forgotten in the order of their numbers. Those up to this one are forgotten,
        # or will be while others define a few more: who has a run of one defines it anew.
        self.stale = 0
        # Requests whose answers nobody waits for, because the program was interrupted.
        self._given_up: set[int] = set()
        self._lost = ""
        self.forked = False  # True in a child of the process that opened the session
        self._pack = msgpack.Packer(autoreset=True).pack
        self._flusher = Flusher(self)
        if blocking:
            self.run = self._run_and_wait  # type: ignore[method-assign]
        forks.add(self)

    # Issuing

    def template(
        self,
        key: Hashable,
        operation: str,
        arguments: Sequence[Any],
        keywords: dict[str, Any],
        outputs: int = 1,
    ) -> Template:
        """Returns the template of `key`, and defines it the first time. The form of the arguments
        is that of `rgpu_common.arrays.messages.Tag`.
        """
        with self._lock:
            known = self._templates.get(key)
            if known is not None:
                return known
            number = Template(next(self._template_ids))
            self._append([Op.DEFINE, number, operation, arguments, keywords, outputs], counts=True)
            self._templates[key] = number
            if len(self._templates) > _TEMPLATES:
                _, oldest = self._templates.popitem(last=False)
                self.stale = oldest + _TEMPLATES_AHEAD
                self._append([Op.FORGET, oldest])
            return number

    def run(self, template: Template, slots: Sequence[Any], ids: Sequence[int]) -> None:
        """Executes a template on the node. `ids` are those of its results.

        Raises:
            SessionLostError: the session has ended.
            BaseException: the library's exception for a lease without room for the results.
        """
        with self._lock:
            # What `_append` does, written out: all operations of a program's loop come here.
            if self._lost:
                raise SessionLostError(self._lost)
            if self._freed:
                self._free_now()
            size = template.size
            if size:
                # What `_take` does, and the sizes of the results.
                room = self._room
                room.balance = balance = room.balance - size
                if balance < room.least:
                    self._make_room(size)
                if len(ids) == 1:
                    room.held[ids[0]] = size
                else:
                    room.held.update(zip(ids, template.sizes, strict=False))
            operations = self._operations
            operations.append((2, template, slots, ids))
            self._number = number = self._number + 1
            self._sites.note(number, template)
            self._unsent = unsent = self._unsent + 1
            if unsent >= FLUSH_OPERATIONS or len(operations) >= _MOST_UNSENT or template.heavy:
                self._send_run(template, ids)
            elif unsent == 1:
                self._flusher.notice()

    def put(self, made: int, dtype: str, shape: Sequence[int], elements: memoryview) -> None:
        """Makes an array on the node of a contiguous buffer, which is read before this returns."""
        with self._lock:
            if not self._room.made(made):
                self._take(elements.nbytes)
                self._room.held[made] = elements.nbytes
            likeness = self._uploads.like(dtype, shape, elements)
            if likeness is not None and self._copied(made, likeness, elements):
                self._uploads.sent(likeness, made, elements.nbytes, 0.0)
                return
            began = time.perf_counter()
            self._body.append(elements)
            self._append([Op.PUT, made, dtype, list(shape), elements.nbytes], counts=True)
            # The caller may change the buffer afterwards.
            self._send()
            self._uploads.sent(likeness, made, elements.nbytes, time.perf_counter() - began)

    def claim(self, made: int, size: int) -> None:
        """Takes room for an object that is made when it is used first, by `put` or behind `made`.

        Raises:
            SessionLostError: the session has ended.
            BaseException: the library's exception for a lease without room for `size` bytes.
        """
        with self._lock:
            self._take(size)
            self._room.claimed(made, size)

    def made(self, made: int) -> None:
        """An object that was claimed is made by the next operation."""
        with self._lock:
            self._room.made(made)

    def grow(self, made: int, size: int) -> None:
        """Takes room for `size` bytes more of an object. Errors as `claim`."""
        with self._lock:
            self._take(size)
            self._room.held[made] = self._room.held.get(made, 0) + size

    def grown(self, made: int, size: int) -> None:
        """The node has given an object `size` bytes more, and had room for them."""
        with self._lock:
            room = self._room
            room.balance -= size
            room.held[made] = room.held.get(made, 0) + size

    # Asking

    def read(self, wanted: int, make: Callable[[str, Sequence[int]], memoryview]) -> None:
        """Reads an array. `make` returns a writable, contiguous buffer for its dtype and shape.

        Raises:
            SessionLostError: the session has ended.
            BaseException: what the failed operation raised on the node.
        """
        with self._lock:
            answer, message = self._ask(Op.READ, wanted)
            if len(answer) != 2 or not isinstance(answer[1], list):
                self._broken("an answer of no form")
            dtype, shape = answer
            buffer = make(str(dtype), tuple(shape))
            if buffer.nbytes != message.body_bytes:
                self._broken("an array of another size than it was said to have")
            self._moved("receiving", buffer.nbytes, self._line.read_into, buffer)

    def describe(self, wanted: Sequence[int]) -> list[Any]:
        """Waits for operations and returns the descriptions of their results. Errors as `read`."""
        with self._lock:
            answer, _ = self._ask(Op.DESCRIBE, list(wanted))
            if len(answer) != 1 or not isinstance(answer[0], list) or len(answer[0]) != len(wanted):
                self._broken("an answer of no form")
            return list(answer[0])

    def sync(self) -> None:
        """Waits until everything issued before is done. Errors as `read`."""
        with self._lock:
            self._ask(Op.SYNC)

    def ask(self, question: str, *details: Any) -> Any:
        """Asks the library on the node something. Errors as `read`."""
        with self._lock:
            answer, _ = self._ask(Op.ASK, question, list(details))
            if len(answer) != 1:
                self._broken("an answer of no form")
            return answer[0]

    def flush(self) -> None:
        """Sends what has been issued.

        Raises:
            SessionLostError: the session has ended.
        """
        with self._lock:
            self._send()

    def close(self) -> None:
        """Sends what has been issued, and ends the session."""
        forks.discard(self)
        with self._lock:
            if not self._lost:
                with contextlib.suppress(SessionLostError):
                    self._send(wait=False)
                self._lost = "the session is closed"
            self._line.shutdown()
            self._line.close()
        self._flusher.stop()

    def forget_in_child(self) -> None:
        """In a forked child, which does not have the session."""
        self._lock = threading.RLock()
        self.forked = True
        self._lost = (
            "this process was forked from the one that opened the session, and does not share it; "
            "start processes with the method 'spawn'"
        )
        self._line.abandon()

    # Within the lock

    @property
    def waiting(self) -> tuple[int, int]:
        """How many operations and frees wait to be sent, and how many operations were ever
        issued.
        """
        return len(self._operations) + len(self._freed), self._number

    def _copied(self, made: int, likeness: Likeness, elements: memoryview) -> bool:
        """Has the node copy an array that was sent before. Returns False if it has none with these
        elements.
        """
        source = self._uploads.find(likeness)
        if source is None:
            return False
        answer, _ = self._ask(
            Op.COPY, made, source, likeness.dtype, list(likeness.shape), digest(elements)
        )
        if len(answer) != 1:
            self._broken("an answer of no form")
        self._uploads.guessed(bool(answer[0]))
        return bool(answer[0])

    def _append(self, operation: Any, counts: bool = False) -> None:
        if self._lost:
            raise SessionLostError(self._lost)
        if self._freed:
            self._free_now()
        operations = self._operations
        operations.append(operation)
        if counts:
            self._number += 1
            self._unsent += 1
            self._sites.note(self._number, None)
        # Frees do not count: they come along.
        if self._unsent >= FLUSH_OPERATIONS or len(operations) >= _MOST_UNSENT:
            self._send()
        elif self._unsent <= 1:
            self._flusher.notice()

    def _free_now(self) -> None:
        # Only the holder of the lock takes out, so as many as were counted are there.
        take, left = self._freed.popleft, len(self._freed)
        freed = self._room.freed
        if left == 1:
            # Most often: the operation before this one has made the last result unneeded.
            one = take()
            if freed(one):
                self._operations.append((4, (one,)))
            return
        while left:
            count = min(left, _MOST_FREED)
            gone = [one for one in (take() for _ in range(count)) if freed(one)]
            if gone:
                self._operations.append((4, gone))
            left -= count

    def _take(self, size: int) -> None:
        """Takes room for `size` bytes. Errors as `claim`."""
        if self._freed:
            self._free_now()
        room = self._room
        room.balance -= size
        if room.balance < room.least:
            self._make_room(size)

    def _make_room(self, size: int) -> None:
        """`size` bytes have been taken for which there may be no room. Waits until the node has
        said that there is. If there is none they are not taken. Errors as `claim`.
        """
        room = self._room
        room.balance += size
        self._send()
        while self._marks:
            self._hear_mark()
            if room.left >= size:
                room.balance -= size
                return
        if self._freed:
            self._free_now()
        balance = room.made_balance
        answer, _ = self._ask(Op.MARK, size, room.unmade_bytes)
        self._told(Mark(0, 0, *self._pace.mark(), balance), answer)
        room.balance -= size

    def _run_and_wait(self, template: Template, slots: Sequence[Any], ids: Sequence[int]) -> None:
        """As `run`. Waits for the operation. Raises its failure, too."""
        with self._lock:
            Issuer.run(self, template, slots, ids)
            try:
                self._ask(Op.SYNC)
            except BaseException:
                for one in ids:
                    self.free(one)
                raise

    def _send_run(self, template: Template, ids: Sequence[int]) -> None:
        """Sends what was issued, last the run of a template. Waits for it now where it may have too
        little memory beside its results.
        """
        if not self._marking:
            # Nobody measures it.
            template.heavy = False
        try:
            self._send()
            if template.tight and self._room.left < template.tight:
                self._ask(Op.SYNC)
        except BaseException:
            # The program, perhaps interrupted, does not get the results.
            for one in ids:
                self.free(one)
            raise

    def _send(self, *, wait: bool = True) -> None:
        if self._lost:
            raise SessionLostError(self._lost)
        if self._freed:
            self._free_now()
        operations, body = self._operations, self._body
        if not operations:
            return
        self._operations, self._body, self._unsent = [], [], 0
        if self._marking and self._pace.add(operations):
            request, now = next(self._requests), time.monotonic_ns()
            mark = Mark(request, now, *self._pace.mark(), self._room.made_balance)
            self._marks.append(mark)
            operations.append([Op.MARK, mark.request, 0, 0])
        head = self._pack(operations)
        if len(head) <= MOST_HEAD_BYTES:
            self._message(head, body)
        else:
            self._send_cut(operations, body)
        # The last mark may be one of an operation that alone takes longer than it should.
        marks, behind = self._marks, self._pace.behind
        while wait and len(marks) > 1 and behind(marks[0], time.monotonic_ns()):
            self._hear_mark()

    def _send_cut(self, operations: list[Any], body: list[memoryview]) -> None:
        """Sends operations one by one."""
        at = 0
        for operation in operations:
            head = self._pack([operation])
            if len(head) > MOST_HEAD_BYTES:
                self._broken(f"an operation of {len(head)} bytes, more than {MOST_HEAD_BYTES}")
            part = body[at : at + 1] if operation[0] == Op.PUT else []
            at += len(part)
            self._message(head, part)

    def _message(self, head: bytes, body: list[memoryview]) -> None:
        size = sum(one.nbytes for one in body)
        if size < _LARGE_BYTES:
            self._guarded(self._line.send, Kind.COMMAND, OPERATIONS, head, body)
        else:
            self._moved("sending", size, self._line.send, Kind.COMMAND, OPERATIONS, head, body, 0)

    def _moved(self, verb: str, size: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Moves bytes; a large transfer shows how far it is."""
        if size < _LARGE_BYTES:
            self._guarded(call, *arguments)
            return
        progress = Progress(verb, size)
        try:
            self._guarded(call, *arguments, progress)
        finally:
            progress.close()

    def _ask(self, operation: Op, *rest: Any) -> tuple[list[Any], Message]:
        request = next(self._requests)
        self._append([operation, request, *rest])
        self._send()
        while True:
            message = self._answer(request)
            answered, status, *answer = self._unpacked(message)
            if answered == request:
                break
            self._other_answer(answered, status, answer, message)
        if status != _OK:
            self._guarded(self._line.skip, message.body_bytes)
            raise self._error(self._failure(answer))
        return answer, message

    def _hear_mark(self) -> None:
        """Waits for the answer to the oldest mark."""
        waiting = len(self._marks)
        while len(self._marks) == waiting:
            message = self._answer(self._marks[0].request)
            answered, status, *answer = self._unpacked(message)
            self._other_answer(answered, status, answer, message)

    def _other_answer(
        self, answered: int, status: int, answer: list[Any], message: Message
    ) -> None:
        """Takes the answer to a mark, or to a question that was given up."""
        if self._marks and answered == self._marks[0].request:
            mark = self._marks.popleft()
            if status == _OK:
                self._told(mark, answer)
        elif answered not in self._given_up:
            self._broken("the answer to another question")
        self._given_up.discard(answered)
        self._guarded(self._line.skip, message.body_bytes)

    def _told(self, mark: Mark, answer: list[Any]) -> None:
        """Takes what the node said at a mark."""
        if len(answer) != 2 or not all(type(one) is int for one in answer):
            self._broken("an answer of no form")
        worked, room = answer
        self._pace.answered(mark, worked)
        self._room.told(mark.balance, room)

    def _unpacked(self, message: Message) -> list[Any]:
        """Returns the parts of an answer, of which there are two at least."""
        if message.kind is not Kind.REPLY or message.opcode != ANSWER:
            self._broken(f"a frame of kind {message.kind.name}")
        try:
            answered, status, *answer = harmless(msgpack.unpackb(message.head, use_list=True))
        except (ValueError, TypeError, RecursionError):
            self._broken("an answer of no form")
        if type(answered) is not int or type(status) is not int:
            self._broken("an answer of no form")
        return [answered, status, *answer]

    def _failure(self, answer: list[Any]) -> Failure:
        try:
            return Failure.of(answer[0])
        except (ValueError, TypeError, IndexError, OverflowError):
            self._broken("a failure of no form")

    def _answer(self, request: int) -> Message:
        """Waits for a message that is no notice. Interrupted, it notes that nobody waits for the
        answer any more, and the session goes on.
        """
        try:
            while True:
                message = self._line.next()
                if message.kind is not Kind.NOTICE:
                    return message
                self._noticed(message)
        except LineError as error:
            self._lose(error)
        except BaseException:
            self._given_up.add(request)
            raise

    def _error(self, failure: Failure) -> BaseException:
        error = self._raising(failure)
        template = self._sites.template(failure.number)
        if template is not None and failure.type.endswith(_NO_MEMORY):
            template.ran_out(self._room.left)
        place = self._sites.find(failure.number)
        if place is not None and failure.name:
            note = f"from {failure.name}, issued at {place[0]}:{place[1]}"
            error.__notes__ = [*getattr(error, "__notes__", ()), note]  # type: ignore[attr-defined]
        error.rgpu_site = place  # type: ignore[attr-defined]
        return error

    def _noticed(self, message: Message) -> None:
        """The worker says something unasked: why it ends, or a sentence for the user."""
        try:
            reader = Reader(message.head)
            reader.integer("u32")
            sentence = reader.text(MAX_SENTENCE_BYTES)
        except WireError:
            return
        if message.opcode == Notice.STICKY:
            self._lost = f"the session has ended: {sentence}"
        elif message.opcode == Notice.LOG:
            print(f"rgpu: {sentence}", file=sys.stderr, flush=True)

    def _guarded(self, call: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except LineError as error:
            self._lose(error)
        except BaseException:
            # An interrupt in the middle of a message: what follows would not be understood.
            self._lost = self._lost or "the session was interrupted in the middle of a message"
            raise

    def _lose(self, error: LineError) -> NoReturn:
        """The line is lost. What the worker said before it ended may still be there to read."""
        try:
            while not self._lost:
                message = self._line.next(_LAST_WORDS_MS)
                if message.kind is Kind.NOTICE:
                    self._noticed(message)
                self._line.skip(message.body_bytes)
        except (LineError, Woken):
            pass
        self._lost = self._lost or f"the session with the GPU node is lost: {error}"
        raise SessionLostError(self._lost) from None

    def _broken(self, what: str) -> NoReturn:
        self._lost = f"the session has ended: the server sent {what}"
        self._line.shutdown()
        raise SessionLostError(self._lost)
