"""Encodes commands into frames and decodes them. Reads the specification; no code is generated.

frame = encode_command("rgpuMemAlloc", {"bytes": 4096}, seq=1)
encode_reply("rgpuMemAlloc", {"dptr": 0x2000_0000_0000}, seq=1)
name, values = decode_command(frame)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cudaspec.load import load
from rgpu_common.wire.frame import Flags, Frame, Kind, WireError, encode_frame
from rgpu_common.wire.scalars import Reader, Writer

if TYPE_CHECKING:
    from cudaspec.rows import CommandRow, Field

Value = int | float | bytes
Values = Mapping[str, Value]

_FLOATS: Final = ("f32", "f64")
_SCALARS: Final = ("u8", "u16", "u32", "i32", "u64", "i64")


def command_row(which: str | int) -> CommandRow:
    """Returns the specification's row of a command, by name or opcode.

    Raises:
        WireError: the specification has no such command.
    """
    spec = load()
    row = spec.commands.get(which) if isinstance(which, str) else spec.opcodes.get(which)
    if row is None:
        known = f"{which:#06x}" if isinstance(which, int) else which
        raise WireError(f"no command {known} in the specification")
    return row


def put_fields(fields: Sequence[Field], values: Values) -> bytes:
    """Encodes a head from `values`, whose names must be exactly those of the fields."""
    names = [field.name for field in fields]
    if sorted(names) != sorted(values):
        raise WireError(f"the fields are {names}, but {sorted(values)} were given")
    w = Writer()
    for field in fields:
        value = values[field.name]
        if isinstance(value, bytes) != (field.kind == "bytes"):
            raise WireError(f"{field.text}: {value!r} is not of type {field.kind}")
        if isinstance(value, bytes):
            w.put_bytes(value)
        else:
            w.put(_scalar(field.kind), value)
    return w.take()


def get_fields(fields: Sequence[Field], head: bytes) -> dict[str, Value]:
    """Decodes the values in `head`.

    Raises:
        WireError: the head is too short, or bytes are left over.
    """
    r = Reader(head)
    values: dict[str, Value] = {}
    for field in fields:
        if field.kind == "bytes":
            values[field.name] = r.sized()
        elif field.kind in _FLOATS:
            values[field.name] = r.number(field.kind)
        else:
            values[field.name] = r.integer(_scalar(field.kind))
    r.end()
    return values


def _scalar(kind: str) -> str:
    # Handles and addresses travel as u64.
    return kind if kind in _SCALARS or kind in _FLOATS else "u64"


def encode_command(
    name: str,
    values: Values,
    *,
    seq: int,
    thread: int = 1,
    context: int = 0,
    watermark: int = 0,
    bulk: bytes = b"",
    more: bool = False,
) -> bytes:
    """Returns a COMMAND frame. `more` is true for all but the last frame of one copy."""
    row = command_row(name)
    flags = Flags.WANTS_REPLY if row.is_call else Flags.NONE
    if more:
        flags |= Flags.MORE
    head = put_fields(row.request, values)
    return encode_frame(
        Kind.COMMAND, row.opcode, head, bulk,
        flags=flags, seq=seq, thread=thread, context=context, watermark=watermark,
    )  # fmt: skip


def encode_reply(
    name: str, values: Values, *, seq: int, status: int = 0, thread: int = 1, watermark: int = 0
) -> bytes:
    """Returns a REPLY frame. With an error status, `values` may be empty, and so is the head."""
    row = command_row(name)
    head = b"" if status != 0 and not values else put_fields(row.reply, values)
    return encode_frame(
        Kind.REPLY, row.opcode, head, status=status, seq=seq, thread=thread, watermark=watermark
    )


def encode_piece(kind: Kind, name: str, offset: int, bulk: bytes, *, seq: int, last: bool) -> bytes:
    """Returns a DATA or DELIVERY frame: `bulk` at `offset` of the result of command `seq`."""
    w = Writer()
    w.put("u64", offset)
    flags = Flags.LAST if last else Flags.NONE
    return encode_frame(kind, command_row(name).opcode, w.take(), bulk, flags=flags, seq=seq)


def decode_command(frame: Frame) -> tuple[str, dict[str, Value]]:
    """Returns name and values of a COMMAND frame. The frame must fit the command's row.

    Raises:
        WireError: unknown opcode, wrong head, or flags or bulk that the row does not have.
    """
    row = command_row(frame.header.opcode)
    if bool(frame.header.flags & Flags.WANTS_REPLY) != row.is_call:
        raise WireError(f"{row.name}: the flag WANTS_REPLY does not fit the command's row")
    if frame.bulk and row.row.bulk != "request":
        raise WireError(f"{row.name} carries no bulk, but the frame has {len(frame.bulk)} bytes")
    return row.name, get_fields(row.request, frame.head)


def decode_reply(frame: Frame) -> tuple[str, dict[str, Value]]:
    """Returns name and values of a REPLY frame. A reply with an error may have no head."""
    row = command_row(frame.header.opcode)
    if frame.header.status != 0 and not frame.head:
        return row.name, {}
    return row.name, get_fields(row.reply, frame.head)
