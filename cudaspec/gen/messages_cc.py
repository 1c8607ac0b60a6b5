"""Generates the C++ codecs of messages: opcodes and limits, structs, Put and Get.

`message_numbers.gen.h`: constants and opcodes. `notices.gen.h`: notices and control messages, which
the hot path reads. `handshake.gen.h/.cc`: the messages that open a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.messages_cc_parts import (
    enum_lines,
    get_lines,
    number_lines,
    put_lines,
    record_lines,
    struct_lines,
)
from cudaspec.gen.source import header, source

if TYPE_CHECKING:
    from cudaspec.message import Message, Messages

_CODEC = '"rgpu_common/native/wire/codec.h"'
# Stands in front of every Get of a message.
READ = "// Checks every field, and that no byte is left. False: refuse the peer."


def message_numbers_h(rows: Messages) -> str:
    body = ["namespace rgpu::wire {", ""]
    for number in rows.numbers.values():
        body += number_lines(number)
    for one in rows.enumerations.values():
        if not one.flags:
            body += ["", f"// {one.about}", *enum_lines(one.cpp or one.name, one.kind, one.values)]
    for name, messages in (
        ("Notice", rows.notices),
        ("Control", rows.controls),
        ("Handshake", rows.handshake),
    ):
        values = {message.name: message.opcode for message in messages}
        body += ["", *enum_lines(name, "u16", values)]
    return header([*body, "", "}  // namespace rgpu::wire"], ["<cstdint>"])


def notices_h(rows: Messages) -> str:
    body = ["namespace rgpu::wire {"]
    for message in (*rows.notices, *rows.controls):
        body += ["", *struct_lines(rows, message.class_name, message.parts, message.about)]
        body += [f"inline {line}" if not line.startswith((" ", "}")) else line
                 for line in (*put_lines(rows, message), *get_lines(rows, message))]  # fmt: skip
    return header([*body, "", "}  // namespace rgpu::wire"], ["<cstdint>", "", _CODEC])


def handshake_h(rows: Messages) -> str:
    body = ["namespace rgpu::wire {"]
    for row in rows.records.values():
        body += ["", *struct_lines(rows, row.name, row.parts, row.about)]
    for message in _native(rows):
        name = message.class_name
        body += ["", *struct_lines(rows, name, message.parts, message.about)]
        body += [
            f"void Put(Writer& w, const {name}& m);",
            READ,
            f"bool Get(Reader& r, {name}* m);",
        ]
    includes = ["<array>", "<cstdint>", "<string>", "<vector>", ""]
    includes += [_CODEC, '"rgpu_common/native/wire/fields.h"', '"rgpu_common/native/wire/frame.h"']
    return header([*body, "", "}  // namespace rgpu::wire"], includes)


def handshake_cc(rows: Messages) -> str:
    body = ["namespace rgpu::wire {", "namespace {", ""]
    for row in rows.records.values():
        body += record_lines(rows, row.name, row.parts)
    body += ["void PutU16(Writer& w, uint16_t row) { w.Put(row); }"]
    body += ["void ReadU16(Reader& r, uint16_t* row) { r.Get(row); }"]
    body += ["", "}  // namespace"]
    for message in _native(rows):
        body += ["", *put_lines(rows, message), "", *get_lines(rows, message)]
    includes = ['"gen/handshake.gen.h"', "", '"rgpu_common/native/wire/text.h"']
    return source([*body, "", "}  // namespace rgpu::wire"], includes)


def _native(rows: Messages) -> list[Message]:
    """The handshake's messages that C++ reads or writes and that have a head."""
    return [m for m in rows.handshake if m.parts and not (m.python or m.elsewhere)]
