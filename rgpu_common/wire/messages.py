"""Notices, control messages and the heads of DATA and DELIVERY frames."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rgpu_common.wire.frame import Frame, Kind, WireError, encode_frame
from rgpu_common.wire.handshake import MAX_SENTENCE_BYTES
from rgpu_common.wire.notices import FIELDS
from rgpu_common.wire.notices import Control as Control
from rgpu_common.wire.notices import Notice as Notice
from rgpu_common.wire.scalars import Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping

MessageValue = int | str


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
        name: r.printable(MAX_SENTENCE_BYTES) if kind == "printable" else r.integer(kind)
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
    return [(kind, name) for kind, _, name in (f.partition(" ") for f in FIELDS[message.name])]


def piece_offset(frame: Frame) -> int:
    """Returns the offset of a DATA or DELIVERY frame's bulk in the result."""
    r = Reader(frame.head)
    offset = r.integer("u64")
    r.end()
    return offset
