"""The messages between daemon and worker (DESIGN.md beside this file)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from rgpu_common.wire.frame import WireError
from rgpu_common.wire.scalars import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_MESSAGE_BYTES = 192 << 10
MAX_TEXT_BYTES = 8 << 10


class MessageType(IntEnum):
    """The u32 that begins every message."""

    ASSIGN = 1
    ATTACH = 2
    END = 3
    RESUME = 4
    READY = 16
    OPENED = 17
    REFUSED = 18
    ENDED = 19
    RESUMED = 20


class Ring(IntEnum):
    """Whether the session uses the ring in shared memory that a client may ask for.

    NOT_LOCAL: the command lane is not a Unix socket. NOT_MADE: the system gave no memory. DECLINED:
    the client refused the ring. In these cases the session stays on the socket.
    """

    NOT_WISHED = 0
    USED = 1
    NOT_LOCAL = 2
    NOT_MADE = 3
    DECLINED = 4


SHM_FALLBACKS = (Ring.NOT_LOCAL, Ring.NOT_MADE, Ring.DECLINED)


@dataclass(frozen=True, slots=True)
class Assign:
    """What a worker needs to know about its one session. Sizes in bytes."""

    session: int
    secret: bytes = field(repr=False)
    slot: int
    memory_bytes: int
    stream_credits: int
    stream_credit_bytes: int
    device_ordinal: int
    tenant: str
    environment: Mapping[str, str]
    hello_head: bytes = field(repr=False)
    resume_grace_ms: int = 0
    compression: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """The worker waits for a session. report: the isolation that the machine did not allow."""

    report: str


@dataclass(frozen=True, slots=True)
class Opened:
    """The worker has sent WELCOME to the client."""

    band_base: int
    band_bytes: int
    ring: Ring = Ring.NOT_WISHED


@dataclass(frozen=True, slots=True)
class Refused:
    """The worker has sent REFUSED to the client."""

    status: int
    sentence: str


@dataclass(frozen=True, slots=True)
class Ended:
    """The session is over; the worker's last message."""

    reason: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """A lane (0 command, 1 control) has a new connection. moved: the old connection still worked.
    resent_bytes: how many bytes were sent again.
    """

    lane: int
    epoch: int
    moved: bool
    resent_bytes: int


FromWorker = Ready | Opened | Refused | Ended | Resumed


def encode_assign(m: Assign) -> bytes:
    """Returns an ASSIGN; its descriptors are sent beside it."""
    w = Writer()
    w.put("u32", MessageType.ASSIGN)
    w.put("u64", m.session)
    w.put_bytes(m.secret)
    w.put("u32", m.slot)
    w.put("u64", m.memory_bytes)
    w.put("u32", m.stream_credits)
    w.put("u64", m.stream_credit_bytes)
    w.put("i32", m.device_ordinal)
    w.put_text(m.tenant)
    w.put_bytes(b"".join(f"{k}={v}\0".encode() for k, v in m.environment.items()))
    w.put_bytes(m.hello_head)
    w.put("u32", m.resume_grace_ms)
    w.put("u8", int(m.compression))
    return w.take()


def encode_attach() -> bytes:
    """Returns an ATTACH; the control connection is sent beside it."""
    w = Writer()
    w.put("u32", MessageType.ATTACH)
    return w.take()


def encode_resume(head: bytes) -> bytes:
    """Returns a RESUME with the client's head; the connection is sent beside it."""
    w = Writer()
    w.put("u32", MessageType.RESUME)
    w.put_bytes(head)
    return w.take()


def encode_end(status: int, sentence: str) -> bytes:
    """Returns an END with a CUresult and its sentence."""
    w = Writer()
    w.put("u32", MessageType.END)
    w.put("i32", status)
    w.put_text(sentence)
    return w.take()


def decode_from_worker(data: bytes) -> FromWorker:
    """Decodes a worker's message.

    Raises:
        WireError: the message is invalid; the worker must then not be trusted any further.
    """
    r = Reader(data)
    kind = r.integer("u32")
    message: FromWorker
    if kind == MessageType.READY:
        message = Ready(_text(r))
    elif kind == MessageType.OPENED:
        message = Opened(r.integer("u64"), r.integer("u64"), _ring(r))
    elif kind == MessageType.REFUSED:
        message = Refused(r.integer("i32"), _text(r))
    elif kind == MessageType.ENDED:
        message = Ended(_text(r))
    elif kind == MessageType.RESUMED:
        message = Resumed(r.integer("u8"), r.integer("u32"), r.integer("u8") != 0, r.integer("u64"))
    else:
        raise WireError(f"a worker sent a message of unknown type {kind}")
    r.end()
    return message


def _ring(r: Reader) -> Ring:
    number = r.integer("u8")
    try:
        return Ring(number)
    except ValueError:
        raise WireError(f"a worker sent an unknown ring state {number}") from None


def _text(r: Reader) -> str:
    """Returns a sentence for the log, with unprintable characters replaced."""
    text = r.sized(MAX_TEXT_BYTES).decode(errors="replace")
    return "".join(c if c.isprintable() else "?" for c in text)
