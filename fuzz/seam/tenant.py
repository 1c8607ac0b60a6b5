"""A hand-written client of the array seam, which sends whatever it is told to."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgpack

from rgpu_client.session.greeting import hello_of
from rgpu_common.arrays.line import Line, LineError, Woken
from rgpu_common.arrays.messages import OPERATIONS, Op
from rgpu_common.wire.fields import WishKey
from rgpu_common.wire.frame import Kind
from rgpu_common.wire.handshake import Handshake
from rgpu_common.wire.hello import GRANTS_MINOR, put_hello
from rgpu_common.wire.notices import Notice
from rgpu_common.wire.scalars import Reader

if TYPE_CHECKING:
    from rgpu_common.arrays.seams import Seam

MEMORY_BYTES = 256 << 20
_OPENED_SECONDS = 120
_SLICE_MS = 200


class EndedError(Exception):
    """The session has ended. `sentence` is what it was told, or empty."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence


class SilentError(Exception):
    """No answer came in time."""


class Tenant:
    """An open session."""

    def __init__(self, server: str, seam: Seam, key: str) -> None:
        """Opens it; `key` is that of its lease.

        Raises:
            EndedError: it was refused.
        """
        self._line = Line.connect(server, 10)
        hello = hello_of(
            {"RGPU_MEMORY": f"{MEMORY_BYTES}", "RGPU_LEASE": key}, "fuzz", key, None,
            [(WishKey.SEAM, int(seam))], GRANTS_MINOR,
        )  # fmt: skip
        self._line.send(Kind.HANDSHAKE, Handshake.HELLO, put_hello(hello))
        message = self._next(_OPENED_SECONDS)
        if message.kind is not Kind.HANDSHAKE or message.opcode != Handshake.WELCOME:
            raise EndedError(f"refused: {message.head!r}")

    def send(self, *operations: Any, body: bytes = b"") -> None:
        """Sends operations in one message. Raises EndedError."""
        self.send_head(msgpack.packb(list(operations)), body)

    def send_head(self, head: bytes, body: bytes = b"", kind: int = Kind.COMMAND) -> None:
        """Sends any bytes as a message. Raises EndedError."""
        try:
            self._line.send(kind, OPERATIONS, head, [memoryview(body)] if body else [])
        except LineError:
            self._hear_the_end()

    def answer(self, request: int, seconds: float) -> list[Any]:
        """Returns the answer to a request, and drops those before.

        Raises:
            EndedError: the session has ended.
            SilentError: nothing came in time.
        """
        until = time.monotonic() + seconds
        while True:
            message = self._next(until - time.monotonic())
            try:
                self._line.skip(message.body_bytes)
            except LineError:
                raise EndedError("") from None
            told: list[Any] = msgpack.unpackb(message.head)
            if told and told[0] == request:
                return told

    def asked(self, request: int, seconds: float) -> list[Any]:
        """Waits until everything before is done. Errors as `answer`."""
        self.send([Op.SYNC, request])
        return self.answer(request, seconds)

    def read(self, request: int, wanted: int, size: int) -> bytes:
        """Returns the elements of an array of `size` bytes. Errors as `answer`."""
        self.send([Op.READ, request, wanted])
        message = self._next(_OPENED_SECONDS)
        data = bytearray(size)
        if message.body_bytes != size:
            self._line.skip(message.body_bytes)
            raise EndedError(f"an array of {message.body_bytes} bytes: {message.head!r}")
        self._line.read_into(memoryview(data))
        return bytes(data)

    def cut(self) -> None:
        """Ends the connection without a word."""
        self._line.close()

    def _next(self, seconds: float) -> Any:
        until = time.monotonic() + seconds
        while True:
            try:
                message = self._line.next(_SLICE_MS)
            except Woken:
                if time.monotonic() > until:
                    raise SilentError from None
                continue
            except LineError:
                raise EndedError("") from None
            if message.kind is Kind.NOTICE:
                self._hear(message)
                continue
            return message

    def _hear(self, message: Any) -> None:
        reader = Reader(message.head)
        reader.integer("u32")
        if message.opcode == Notice.STICKY:
            raise EndedError(reader.text(4096))

    def _hear_the_end(self) -> None:
        """The line cannot be written; a last notice may lie in it."""
        while True:
            self._next(5)
