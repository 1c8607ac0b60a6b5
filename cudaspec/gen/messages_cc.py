"""Generates the C++ codecs of messages: opcodes and limits, structs, Put and Get.

`message_numbers.gen.h`: constants and opcodes. `notices.gen.h`: notices and control messages, which
the hot path reads. `handshake.gen.h/.cc`: the messages that open a session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.field_form import FieldForm
from cudaspec.gen.source import C_TYPES, header, source
from cudaspec.load_messages import SCALAR_BYTES, is_fixed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cudaspec.message import Enumeration, Message, Messages, Part

_CODEC = '"rgpu_common/native/wire/codec.h"'
_BYTES = "w.Put(Bytes({value}.data(), {value}.size()));"
_FORMS = {
    "magic": FieldForm("", put="w.Put(kMagic);", get="GetMagic(r)"),
    "bool": FieldForm("bool", " = false", "w.Put(static_cast<uint8_t>({value} ? 1 : 0));"),
    "text": FieldForm("std::string", get="GetText(r, &{value}, {most})"),
    "printable": FieldForm("ByteView"),
    "secret": FieldForm(
        "std::array<uint8_t, kSecretBytes>", "{}", _BYTES, "GetExactly(r, &{value})"
    ),
    "uuid": FieldForm("std::array<uint8_t, 16>", "{}", _BYTES, "GetExactly(r, &{value})"),
    "band": FieldForm("Band", "", "PutBand(w, {value});", "GetBand(r, &{value})"),
    "bands": FieldForm("std::vector<Band>", "", "PutBands(w, {value});", "GetBands(r, &{value})"),
    "wishes": FieldForm(
        "std::vector<Wish>", "", "PutWishes(w, {value});", "GetWishes(r, &{value})"
    ),
    "u16[]": FieldForm("std::vector<uint16_t>"),
}
_OTHER = FieldForm("")
_SCALARS = ("u8", "u16", "u32", "i32", "u64")


def message_numbers_h(rows: Messages) -> str:
    body = ["namespace rgpu::wire {", ""]
    for number in rows.numbers.values():
        body += [
            f"// {number.about}",
            f"inline constexpr {C_TYPES[number.kind]} {_constant(number.name)} = {number.value};",
        ]
    for one in rows.enumerations.values():
        if not one.flags:
            body += ["", f"// {one.about}", *_enum(one.cpp or one.name, one.kind, one.values)]
    for name, messages in (
        ("Notice", rows.notices),
        ("Control", rows.controls),
        ("Handshake", rows.handshake),
    ):
        values = {message.name: message.opcode for message in messages}
        body += ["", *_enum(name, "u16", values)]
    return header([*body, "", "}  // namespace rgpu::wire"], ["<cstdint>"])


def notices_h(rows: Messages) -> str:
    body = ["namespace rgpu::wire {"]
    for message in (*rows.notices, *rows.controls):
        body += ["", *_struct(rows, message.class_name, message.parts, message.about)]
        body += [f"inline {line}" if not line.startswith((" ", "}")) else line
                 for line in (*_put(rows, message), *_get(rows, message))]  # fmt: skip
    return header([*body, "", "}  // namespace rgpu::wire"], ["<cstdint>", "", _CODEC])


def handshake_h(rows: Messages) -> str:
    body = ["namespace rgpu::wire {"]
    for record in rows.records.values():
        body += ["", *_struct(rows, record.name, record.parts, record.about)]
    for message in _native(rows):
        name = message.class_name
        body += ["", *_struct(rows, name, message.parts, message.about)]
        body += [
            f"void Put(Writer& w, const {name}& m);",
            "// Checks every field, and that no byte is left. False: refuse the peer.",
            f"bool Get(Reader& r, {name}* m);",
        ]
    includes = ["<array>", "<cstdint>", "<string>", "<vector>", ""]
    includes += [_CODEC, '"rgpu_common/native/wire/fields.h"', '"rgpu_common/native/wire/frame.h"']
    return header([*body, "", "}  // namespace rgpu::wire"], includes)


def handshake_cc(rows: Messages) -> str:
    body = ["namespace rgpu::wire {", "namespace {", ""]
    for record in rows.records.values():
        body += _record(rows, record.name, record.parts)
    body += ["void PutU16(Writer& w, uint16_t row) { w.Put(row); }"]
    body += ["void ReadU16(Reader& r, uint16_t* row) { r.Get(row); }"]
    body += ["", "}  // namespace"]
    for message in _native(rows):
        body += ["", *_put(rows, message), "", *_get(rows, message)]
    includes = ['"gen/handshake.gen.h"', "", '"rgpu_common/native/wire/text.h"']
    return source([*body, "", "}  // namespace rgpu::wire"], includes)


def _native(rows: Messages) -> list[Message]:
    """The handshake's messages that C++ reads or writes and that have a head."""
    return [m for m in rows.handshake if m.parts and not (m.python or m.elsewhere)]


def _constant(name: str | int) -> str:
    """Returns the C++ name of MAX_NAME_BYTES; a number stays one."""
    if isinstance(name, int):
        return str(name)
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def _enum(name: str, kind: str, values: object) -> list[str]:
    assert isinstance(values, dict)
    return [
        f"enum class {name} : {C_TYPES[kind]} {{",
        *(f"  {_constant(one)} = {value}," for one, value in values.items()),
        "};",
    ]


def _type(rows: Messages, kind: str) -> str:
    if kind in _SCALARS:
        return C_TYPES[kind]
    if kind in rows.enumerations:
        return _enum_name(rows.enumerations[kind])
    record = kind.rstrip("[]#")
    return f"std::vector<{record}>" if record in rows.records else _FORMS[kind].type


def _enum_name(one: Enumeration) -> str:
    return one.cpp or one.name


def _struct(rows: Messages, name: str, parts: Sequence[Part], about: str) -> list[str]:
    members = []
    for part in parts:
        if part.kind == "magic":
            continue
        if part.kind in _SCALARS:
            value = f" = {_constant(part.default)}"
        elif part.kind in rows.enumerations:
            value = "{}"
        else:
            value = _FORMS.get(part.kind, _OTHER).start
        note = f"  // {part.about}" if part.about else ""
        members.append(f"  {_type(rows, part.kind)} {part.name}{value};{note}")
    if is_fixed(parts) and parts and name in rows.records:
        members.append(f"  bool operator==(const {name}&) const = default;")
    return [f"// {about}", f"struct {name} {{", *members, "};"]


def _record(rows: Messages, name: str, parts: Sequence[Part]) -> list[str]:
    """Returns the functions that write and read one row, or one record of a list."""
    puts = [line for part in parts for line in _put_part(rows, part)]
    lines = [f"void Put{name}(Writer& w, const {name}& m) {{", *puts, "}", ""]
    if is_fixed(parts):
        gets = [f"  r.Get(&m->{part.name});" for part in parts]
        return [*lines, f"void Read{name}(Reader& r, {name}* m) {{", *gets, "}", ""]
    gets = [line for part in parts for line in _get_part(rows, part)]
    end = _end(rows, parts, "r.ok()")
    return [*lines, f"bool Read{name}(Reader& r, {name}* m) {{", *gets, *end, "}", ""]


def _put(rows: Messages, message: Message) -> list[str]:
    name = message.class_name
    if not message.parts:
        return [f"void Put(Writer&, const {name}&) {{}}"]
    lines = [line for part in message.parts for line in _put_part(rows, part)]
    return [f"void Put(Writer& w, const {name}& m) {{", *lines, "}"]


def _put_part(rows: Messages, part: Part) -> list[str]:
    lines = [f"  {_written(rows, part)}"]
    record = part.kind.rstrip("#")
    if part.kind.endswith("#"):
        lines = [
            f"  w.Put(static_cast<uint32_t>(m.{part.name}.size()));",
            f"  for (const {record}& one : m.{part.name}) Put{record}(w, one);",
        ]
    if part.minor:
        return [f"  if (m.minor >= {_constant(part.minor)}) {lines[0].strip()}"]
    if part.optional:
        return [f"  if (!m.{part.name}.empty()) {lines[0].strip()}"]
    return lines


def _written(rows: Messages, part: Part) -> str:
    """Returns the statement that writes a field."""
    value = f"m.{part.name}"
    if part.kind == "text":
        text = f"CleanText({value}, {_constant(part.most)})" if part.cleaned else value
        return f"PutText(w, {text});"
    if part.kind.endswith("[]"):
        row, size = _row(rows, part.kind)
        return f"PutRows(w, {value}, {size}, Put{row});"
    form = _FORMS.get(part.kind, _OTHER).put or "w.Put({value});"
    return form.format(value=value)


def _row(rows: Messages, kind: str) -> tuple[str, int]:
    """Returns the name of a row's functions, and its size in bytes."""
    name = kind.removesuffix("[]")
    if name in SCALAR_BYTES:
        return name.upper(), SCALAR_BYTES[name]
    return name, sum(SCALAR_BYTES[part.kind] for part in rows.records[name].parts)


def _get(rows: Messages, message: Message) -> list[str]:
    name = message.class_name
    if not message.parts:
        return [f"bool Get(Reader& r, {name}*) {{ return r.done(); }}"]
    lines = []
    for part in message.parts:
        lines += _get_part(rows, part)
        if message.stops and message.stops[0] == part.name:
            _, other, constant = message.stops
            lines.append(f"  if (!r.ok() || m->{other} != {_constant(constant)}) return r.ok();")
    end = _end(rows, message.parts, "r.done()")
    return [f"bool Get(Reader& r, {name}* m) {{", *lines, *end, "}"]


def _get_part(rows: Messages, part: Part) -> list[str]:
    to = f"m->{part.name}"
    if part.kind == "bool":
        return [
            f"  uint8_t {part.name} = 0;",
            f"  r.Get(&{part.name});",
            f"  {to} = {part.name} == 1;",
        ]
    if part.kind.endswith("#"):
        return _get_records(part)
    good = _taken(rows, part)
    if not good:
        return [f"  r.Get(&{to});"]
    if part.minor:
        return [f"  if (m->minor >= {_constant(part.minor)} && !{good}) return false;"]
    if part.optional:
        # An empty list must have no bytes, so that every accepted message has one form only.
        return [
            f"  {to}.clear();",
            f"  if (!r.done() && (!{good} || {to}.empty())) return false;",
        ]
    return [f"  if (!{good}) return false;"]


def _get_records(part: Part) -> list[str]:
    record, count = part.kind.rstrip("#"), f"{part.name}_count"
    return [
        f"  uint32_t {count} = 0;",
        f"  r.Get(&{count});",
        f"  if (!r.ok() || {count} > {_constant(part.most)}) return false;",
        f"  m->{part.name}.assign({count}, {record}{{}});",
        f"  for ({record}& one : m->{part.name}) {{",
        f"    if (!Read{record}(r, &one)) return false;",
        "  }",
    ]


def _taken(rows: Messages, part: Part) -> str:
    """Returns the expression that reads a field and is false if it is malformed; "": none."""
    value, most = f"m->{part.name}", _constant(part.most)
    if part.kind.endswith("[]"):
        row, size = _row(rows, part.kind)
        return f"GetRows(r, &{value}, {size}, {most}, Read{row})"
    return _FORMS.get(part.kind, _OTHER).get.format(value=value, most=most)


def _end(rows: Messages, parts: Sequence[Part], done: str) -> list[str]:
    """Returns the last statement: everything is read, and every number is within its bounds."""
    checks = [done]
    for part in parts:
        value = f"m->{part.name}"
        if part.kind in rows.enumerations:
            count = len(rows.enumerations[part.kind].values)
            checks.append(f"static_cast<unsigned>({value}) < {count}")
        elif part.kind == "bool":
            checks.append(f"{part.name} <= 1")
        elif part.kind == "text" and part.least:
            checks.append(f"{value}.size() >= {part.least}")
        elif part.kind in _SCALARS:
            checks += [f"{value} >= {part.least}"] if part.least else []
            checks += [f"{value} <= {_constant(part.most)}"] if part.most else []
        if part.needs:
            checks.append(f"({value}.empty() || m->{part.needs})")
    return [f"  return {' && '.join(checks)};"]
