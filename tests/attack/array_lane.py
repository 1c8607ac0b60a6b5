"""A client of the array seam that says what it likes: it has no check of the honest client's."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgpack
import numpy as np
from helpers.server import Server
from helpers.waiting import wait_until

from rgpu_common.arrays.line import Line, LineError, Message
from rgpu_common.arrays.messages import OPERATIONS, Op, Tag
from rgpu_common.arrays.seams import Seam
from rgpu_common.closing import Closing
from rgpu_common.wire.fields import Wish, WishKey
from rgpu_common.wire.frame import Kind
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import GRANTS_MINOR, Hello, put_hello
from rgpu_common.wire.scalars import Reader
from rgpu_common.wire.welcome import decode_welcome

# Forms of an argument: an object of the session, and a number or a text.
A, V = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE]
UNKNOWN_OUTPUTS = -1
_CONNECT_SECONDS = 60.0
_ANSWER_MS = 120_000


class RefusedError(Exception):
    """The worker refuses an operation. The text is the type and the text of its error."""


class EndedError(Exception):
    """The session has ended. The text is the worker's last sentence."""


class ArrayLane(Closing):
    """A session at the array seam. seam: which library. fields: of HELLO."""

    def __init__(
        self, server: Server, tenant: str, seam: Seam = Seam.CUPY, **fields: object
    ) -> None:
        self._line = Line.connect(server.tcp, _CONNECT_SECONDS)
        self.new_id = itertools.count(1).__next__
        self._last_words = "without a sentence"
        hello = Hello(
            minor=GRANTS_MINOR, release="test", program="attack", pid=1, tenant=tenant,
            wishes=(Wish(WishKey.SEAM, int(seam)),), **{"lease_key": tenant, **fields},
        )  # fmt: skip
        self._line.send(Kind.HANDSHAKE, Handshake.HELLO, put_hello(hello))
        answer = self._next()
        assert answer.kind is Kind.HANDSHAKE
        assert answer.opcode == Handshake.WELCOME, answer.head
        self.session = decode_welcome(answer.head).session

    def close(self) -> None:
        self._line.close()

    def put(self, value: Any) -> int:
        """Uploads an array; returns its id."""
        array, made = np.ascontiguousarray(value), self.new_id()
        shape = list(np.shape(value))
        elements = memoryview(array.reshape(-1).view(np.uint8))
        self._send([[Op.PUT, made, array.dtype.name, shape, elements.nbytes]], elements)
        return made

    def run(
        self,
        name: str,
        arguments: Sequence[Any],
        slots: Sequence[Any] = (),
        outputs: int = 1,
        **keywords: Any,
    ) -> int:
        """Issues an operation; returns the id of its result."""
        template, made = self.new_id(), self.new_id()
        define = [Op.DEFINE, template, name, list(arguments), keywords, outputs]
        ids = [made] if outputs else []
        self._send([define, [Op.RUN, template, list(slots), ids], [Op.FORGET, template]])
        return made

    def free(self, *ids: int) -> None:
        self._send([[Op.FREE, list(ids)]])

    def ask(self, operation: Op, *details: Any) -> list[Any]:
        """Asks a question; returns the parts of the answer. RefusedError: the worker refuses."""
        answer, message = self._asked(operation, *details)
        self._line.skip(message.body_bytes)
        return answer

    def done(self, *ids: int) -> None:
        """Waits for results. RefusedError: one of them failed."""
        self.ask(Op.DESCRIBE, list(ids))

    def sync(self) -> None:
        """Waits for everything. RefusedError: something failed that nobody was told of."""
        self.ask(Op.SYNC)

    def read(self, wanted: int) -> Any:
        """Downloads an array. RefusedError: the operation that made it failed."""
        (dtype, shape), message = self._asked(Op.READ, wanted)
        array = np.empty(shape, dtype)
        assert array.nbytes == message.body_bytes
        self._line.read_into(memoryview(array.reshape(-1).view(np.uint8)))
        return array

    def works(self) -> bool:
        """Whether the session computes what it should."""
        one = self.put(np.arange(3.0))
        total = self.run("add", [A, A], [one, one])
        return bool(self.read(total).tolist() == [0.0, 2.0, 4.0])

    def _send(self, operations: list[Any], body: memoryview | None = None) -> None:
        parts = [] if body is None else [body]
        try:
            self._line.send(Kind.COMMAND, OPERATIONS, msgpack.packb(operations), parts)
        except LineError:
            self._next()
            raise

    def _asked(self, operation: Op, *details: Any) -> tuple[list[Any], Message]:
        request = self.new_id()
        self._send([[operation, request, *details]])
        message = self._next()
        answered, status, *answer = msgpack.unpackb(message.head)
        assert answered == request
        if status:
            kind, text, *_ = answer[0]
            raise RefusedError(f"{kind}: {text}")
        return answer, message

    def _next(self) -> Message:
        """Returns the next message that is no notice. EndedError: none will come."""
        try:
            while (message := self._line.next(_ANSWER_MS)).kind is Kind.NOTICE:
                reader = Reader(message.head)
                reader.integer("u32")
                self._last_words = reader.printable()
        except LineError:
            raise EndedError(self._last_words) from None
        return message


def worker_of(server: Server, lane: ArrayLane) -> int:
    """Returns the process id of the worker of a session."""
    found: list[int] = []

    def noted() -> bool:
        for line in list(server.log):
            if '"event":"session_assigned"' in line:
                fields = json.loads(line[line.index("{") :])
                found.extend([fields["worker"]] if fields["session"] == lane.session else [])
        return bool(found)

    wait_until(noted)
    return found[0]
