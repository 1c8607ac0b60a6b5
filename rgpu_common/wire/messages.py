"""Notices, control messages and the heads of DATA and DELIVERY frames."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

from rgpu_common.wire.frame import Frame, Kind, WireError, encode_frame
from rgpu_common.wire.handshake import MAX_SENTENCE_BYTES
from rgpu_common.wire.scalars import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

MessageValue = int | str


class Notice(IntEnum):
    """Opcodes of frames of kind NOTICE: messages that the worker sends unasked."""

    CREDIT = 1
    COMPLETED = 2
    STICKY = 3
    PULL = 4
    CALLBACK = 5
    LOG = 6
    ACK = 7
    COMPILED = 8


class Control(IntEnum):
    """Opcodes of frames of kind CONTROL: messages that the client sends on the control lane."""

    BYE = 1
    CANCEL = 2
    PULL_DATA = 3
    CALLBACK_DONE = 4
    KEEP_ALIVE = 5
    COPY_DONE = 6


# The keys are names, because notices and control messages share numbers and would be equal as keys.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    Notice.CREDIT.name: ("u64 stream", "u64 completed"),
    Notice.COMPLETED.name: ("u64 object", "u64 version", "u64 time_ns"),
    Notice.STICKY.name: ("u32 context", "text sentence"),
    Notice.PULL.name: ("u64 pull", "u64 offset", "u64 bytes"),
    Notice.CALLBACK.name: ("u64 callback",),
    Notice.LOG.name: ("u32 level", "text text"),
    Notice.ACK.name: (),
    Notice.COMPILED.name: ("u64 ns", "text name"),
    Control.BYE.name: (),
    Control.CANCEL.name: ("u64 seq",),
    Control.PULL_DATA.name: ("u64 pull", "u64 offset"),
    Control.CALLBACK_DONE.name: ("u64 callback",),
    Control.KEEP_ALIVE.name: (),
    Control.COPY_DONE.name: ("u64 ticket",),
}


def encode_message(
    message: Notice | Control,
    values: Mapping[str, MessageValue] | None = None,
    *,
    bulk: bytes = b"",
    status: int = 0,
    seq: int = 0,
    watermark: int = 0,
) -> bytes:
    """Returns a NOTICE or CONTROL frame."""
    given = dict(values or {})
    w = Writer()
    for scalar, name in _split(message):
        value = given.pop(name)
        if isinstance(value, str):
            w.put_text(value)
        else:
            w.put(scalar, value)
    if given:
        raise WireError(f"{message.name} has no field {sorted(given)}")
    kind = Kind.NOTICE if isinstance(message, Notice) else Kind.CONTROL
    return encode_frame(kind, message, w.take(), bulk, status=status, seq=seq, watermark=watermark)


def decode_message(frame: Frame) -> tuple[Notice | Control, dict[str, MessageValue]]:
    """Returns the message of a NOTICE or CONTROL frame, and its values.

    Raises:
        WireError: the message is unknown, or its head is malformed.
    """
    message = _message(frame.header.kind, frame.header.opcode)
    r = Reader(frame.head)
    values: dict[str, MessageValue] = {
        name: r.printable(MAX_SENTENCE_BYTES) if kind == "text" else r.integer(kind)
        for kind, name in _split(message)
    }
    r.end()
    return message, values


def _message(kind: Kind, opcode: int) -> Notice | Control:
    try:
        if kind is Kind.NOTICE:
            return Notice(opcode)
        if kind is Kind.CONTROL:
            return Control(opcode)
    except ValueError:
        raise WireError(f"unknown {kind.name} {opcode}") from None
    raise WireError(f"a {kind.name} frame is neither a notice nor a control message")


def _split(message: Notice | Control) -> list[tuple[str, str]]:
    return [(kind, name) for kind, _, name in (f.partition(" ") for f in _FIELDS[message.name])]


def piece_offset(frame: Frame) -> int:
    """Returns the offset of a DATA or DELIVERY frame's bulk in the result."""
    r = Reader(frame.head)
    offset = r.integer("u64")
    r.end()
    return offset
