"""Every command of the specification: the Python codec against the generated C++ one."""

from __future__ import annotations

import math
import struct

import pytest
from helpers.corrupt import corrupted_words, hostile_words, prefixes
from helpers.counts import count
from helpers.native_abi import REFUSED, UNKNOWN, command_roundtrip
from hypothesis import given, settings
from hypothesis import strategies as st

from cudaspec.load import load
from cudaspec.rows import CommandRow, Field
from rgpu_common.wire.codec import (
    Value,
    command_row,
    decode_command,
    decode_reply,
    encode_command,
    encode_piece,
    encode_reply,
    get_fields,
    put_fields,
)
from rgpu_common.wire.frame import Flags, Kind, WireError, decode_frames
from rgpu_common.wire.messages import piece_offset

COMMANDS = list(load().commands.values())
SIDES = [
    pytest.param(row, reply, id=f"{row.name}-{'reply' if reply else 'request'}")
    for row in COMMANDS
    for reply in (False, True)
]
QUICK = settings(max_examples=count("RGPU_WIRE_EXAMPLES", 5), deadline=None, database=None)


def _value(field: Field) -> st.SearchStrategy[Value]:
    kind = field.kind
    if kind == "bytes":
        return st.binary(max_size=80)
    if kind == "f32":
        return st.floats(width=32, allow_nan=False)
    if kind == "f64":
        return st.floats(allow_nan=False)
    bits = int(kind[1:]) if kind[1:].isdigit() else 64
    if kind in ("i32", "i64"):
        return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)
    return st.integers(0, (1 << bits) - 1)


def _values(fields: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Value]]:
    return st.fixed_dictionaries({field.name: _value(field) for field in fields})


def _python_accepts(fields: tuple[Field, ...], head: bytes) -> bool:
    try:
        get_fields(fields, head)
    except WireError:
        return False
    return True


@pytest.mark.parametrize(("row", "reply"), SIDES)
@QUICK
@given(data=st.data())
def test_round_trip(row: CommandRow, reply: bool, data: st.DataObject) -> None:
    fields = row.reply if reply else row.request
    values = data.draw(_values(fields))
    head = put_fields(fields, values)
    assert get_fields(fields, head) == values
    assert command_roundtrip(row.opcode, reply, head) == head
    for damaged in prefixes(head):
        assert command_roundtrip(row.opcode, reply, damaged) == REFUSED
        assert not _python_accepts(fields, damaged)
    assert command_roundtrip(row.opcode, reply, head + b"\0") == REFUSED
    assert not _python_accepts(fields, head + b"\0")


@pytest.mark.full
@pytest.mark.parametrize(("row", "reply"), SIDES)
@QUICK
@given(data=st.data(), mask=st.integers(1, 0xFFFFFFFF))
def test_every_word_corrupted(row: CommandRow, reply: bool, data: st.DataObject, mask: int) -> None:
    fields = row.reply if reply else row.request
    head = put_fields(fields, data.draw(_values(fields)))
    for damaged in (*corrupted_words(head, mask), *hostile_words(head)):
        result = command_roundtrip(row.opcode, reply, damaged)
        assert result in (REFUSED, damaged)
        assert _python_accepts(fields, damaged) == (result == damaged)


def test_there_are_commands_with_every_kind_of_field() -> None:
    kinds = {field.kind for row in COMMANDS for field in (*row.request, *row.reply)}
    assert {"u8", "u32", "i32", "u64", "f32", "address", "bytes", "stream"} <= kinds


def test_unknown_opcodes() -> None:
    known = set(load().opcodes)
    for opcode in range(0x1000):
        if opcode not in known:
            assert command_roundtrip(opcode, False, b"") == UNKNOWN
            with pytest.raises(WireError, match="no command"):
                command_row(opcode)


def test_bytes_on_the_wire_are_what_the_format_says() -> None:
    frame = encode_command(
        "rgpuModuleGetFunction",
        {"module": 3, "name": b"saxpy", "function": 4},
        seq=9,
        thread=2,
        context=1,
        watermark=5,
    )
    head = struct.pack("<QI5sQ", 3, 5, b"saxpy", 4)
    assert frame == struct.pack("<IIHBBiQQII", 25, 0, 0x0206, 1, 1, 0, 9, 5, 2, 1) + head


def test_frames_of_commands() -> None:
    values: dict[str, Value] = {
        "dst": 1 << 45, "pitch": 0, "width": 3, "height": 1, "stream": 1, "synchronous": 1,
    }  # fmt: skip
    sent = encode_command("rgpuCopyHtoD", values, seq=1, bulk=b"abc", more=True)
    (frame,) = decode_frames(sent)
    assert frame.header.flags == Flags.MORE
    assert frame.bulk == b"abc"
    assert decode_command(frame) == ("rgpuCopyHtoD", values)
    answer = encode_reply("rgpuEventElapsedTime", {"milliseconds": 0.5}, seq=2)
    (frame,) = decode_frames(answer)
    assert decode_reply(frame) == ("rgpuEventElapsedTime", {"milliseconds": 0.5})
    (frame,) = decode_frames(encode_reply("rgpuEventElapsedTime", {}, seq=2, status=600))
    assert decode_reply(frame) == ("rgpuEventElapsedTime", {})
    piece = encode_piece(Kind.DELIVERY, "rgpuCopyDtoHLater", 7, b"xy", seq=3, last=True)
    (frame,) = decode_frames(piece)
    assert piece_offset(frame) == 7
    assert frame.header.flags == Flags.LAST


def test_frames_that_do_not_fit_their_row() -> None:
    wrong_flag = bytearray(encode_command("rgpuMemGetInfo", {}, seq=1))
    wrong_flag[11] = 0
    (frame,) = decode_frames(bytes(wrong_flag))
    with pytest.raises(WireError, match="WANTS_REPLY"):
        decode_command(frame)
    (frame,) = decode_frames(encode_command("rgpuMemFree", {"dptr": 1}, seq=1, bulk=b"x"))
    with pytest.raises(WireError, match="carries no bulk"):
        decode_command(frame)


@pytest.mark.parametrize(
    "values", [{}, {"bytes": -1}, {"bytes": 1 << 64}, {"bytes": b"x"}, {"bytes": 1, "more": 2}]
)
def test_values_that_do_not_fit(values: dict[str, Value]) -> None:
    with pytest.raises(WireError):
        encode_command("rgpuMemAlloc", values, seq=1)


def test_a_signalling_nan_survives_the_generated_codec() -> None:
    row = command_row("rgpuEventElapsedTime")
    head = struct.pack("<I", 0x7F800001)
    assert command_roundtrip(row.opcode, True, head) == head
    (value,) = get_fields(row.reply, head).values()
    assert isinstance(value, float)
    assert math.isnan(value)
