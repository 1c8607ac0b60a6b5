"""The C++ code of a message, record or enumeration: struct, Put and Get, field by field."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from cudaspec.gen.field_form import FieldForm
from cudaspec.gen.source import C_TYPES
from cudaspec.load_messages import SCALAR_BYTES, is_fixed, silent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaspec.message import Enumeration, Message, Messages, Number, Part

_BYTES = "w.Put(Bytes({value}.data(), {value}.size()));"
_FORMS = {
    "magic": FieldForm("", put="w.Put(kMagic);", get="GetMagic(r)"),
    "zero": FieldForm("", put="w.Put(uint32_t{{0}});", get="GetZero(r)"),
    "bool": FieldForm("bool", " = false", "w.Put(static_cast<uint8_t>({value} ? 1 : 0));"),
    "text": FieldForm("std::string", get="GetText(r, &{value}, {most})"),
    "string": FieldForm(
        "std::string", "", "PutText(w, {value});", "GetString(r, &{value}, {most})"
    ),
    "line": FieldForm(
        "std::string", "", "PutText(w, CleanText({value}, {most}));", "GetLine(r, &{value}, {most})"
    ),
    "strings": FieldForm(
        "std::vector<std::string>",
        "",
        "PutStrings(w, {value});",
        "GetStrings(r, &{value}, {most})",
    ),
    "bytes": FieldForm("std::vector<uint8_t>", "", _BYTES, "GetBytes(r, &{value}, {most})"),
    "printable": FieldForm("ByteView"),
    "secret": FieldForm(
        "std::array<uint8_t, kSecretBytes>", "{}", _BYTES, "GetExactly(r, &{value})"
    ),
    "digest": FieldForm("std::array<uint8_t, 32>", "{}", _BYTES, "GetExactly(r, &{value})"),
    "uuid": FieldForm("std::array<uint8_t, 16>", "{}", _BYTES, "GetExactly(r, &{value})"),
    "band": FieldForm("Band", "", "PutBand(w, {value});", "GetBand(r, &{value})"),
    "bands": FieldForm("std::vector<Band>", "", "PutBands(w, {value});", "GetBands(r, &{value})"),
    "wishes": FieldForm(
        "std::vector<Wish>", "", "PutWishes(w, {value});", "GetWishes(r, &{value})"
    ),
    "u16[]": FieldForm("std::vector<uint16_t>"),
    "u32#": FieldForm("std::vector<uint32_t>"),
    "bytes#": FieldForm("std::vector<std::vector<uint8_t>>"),
    "string#": FieldForm("std::vector<std::string>"),
}
_OTHER = FieldForm("")


def constant(name: str | int) -> str:
    """Returns the C++ name of MAX_NAME_BYTES; a number stays one."""
    if isinstance(name, int):
        return str(name)
    return "k" + "".join(word.capitalize() for word in name.split("_"))


def number_lines(number: Number) -> list[str]:
    return [
        f"// {number.about}",
        f"inline constexpr {C_TYPES[number.kind]} {constant(number.name)} = {number.value};",
    ]


def enum_lines(name: str, kind: str, values: Mapping[str, int]) -> list[str]:
    return [
        f"enum class {name} : {C_TYPES[kind]} {{",
        *(f"  {constant(one)} = {value}," for one, value in values.items()),
        "};",
    ]


def _type(rows: Messages, kind: str) -> str:
    if kind in SCALAR_BYTES:
        return C_TYPES[kind]
    if kind in rows.enumerations:
        return _enum_name(rows.enumerations[kind])
    record = kind.rstrip("[]#")
    return f"std::vector<{record}>" if record in rows.records else _FORMS[kind].type


def comment(text: str) -> list[str]:
    return [f"// {line}" for line in textwrap.wrap(text, 97)]


def _enum_name(one: Enumeration) -> str:
    return one.cpp or one.name


def struct_lines(
    rows: Messages, name: str, parts: Sequence[Part], about: str, first: Sequence[str] = ()
) -> list[str]:
    """Returns the struct of a message or record. first: the lines in front of its members."""
    members = [*first]
    for part in parts:
        if silent(part):
            continue
        note = f"  // {part.about}" if part.about else ""
        members.append(f"  {_type(rows, part.kind)} {part.name}{_start(rows, part)};{note}")
    if is_fixed(parts) and parts and name in rows.records:
        members.append(f"  bool operator==(const {name}&) const = default;")
    return [*comment(about), f"struct {name} {{", *members, "};"]


def _start(rows: Messages, part: Part) -> str:
    """Returns the initialiser of a member."""
    if part.kind in SCALAR_BYTES:
        return f" = {constant(part.default)}"
    if part.kind not in rows.enumerations:
        return _FORMS.get(part.kind, _OTHER).start
    one = rows.enumerations[part.kind]
    first, value = next(iter(one.values.items()))
    return f" = {_enum_name(one)}::{constant(first)}" if value else "{}"


def record_lines(rows: Messages, name: str, parts: Sequence[Part]) -> list[str]:
    """Returns the functions that write and read one row, or one record of a list."""
    puts = [line for part in parts for line in _put_part(rows, part)]
    lines = [f"void Put{name}(Writer& w, const {name}& m) {{", *puts, "}", ""]
    if is_fixed(parts):
        gets = [f"  r.Get(&m->{part.name});" for part in parts]
        return [*lines, f"void Read{name}(Reader& r, {name}* m) {{", *gets, "}", ""]
    gets = [line for part in parts for line in _get_part(rows, part)]
    end = _end(rows, parts, "r.ok()")
    return [*lines, f"bool Read{name}(Reader& r, {name}* m) {{", *gets, *end, "}", ""]


def put_lines(rows: Messages, message: Message) -> list[str]:
    name = message.class_name
    if not message.parts:
        return [f"void Put(Writer&, const {name}&) {{}}"]
    lines = [line for part in message.parts for line in _put_part(rows, part)]
    return [f"void Put(Writer& w, const {name}& m) {{", *lines, "}"]


def _put_part(rows: Messages, part: Part) -> list[str]:
    if part.kind == "count":
        return [f"  w.Put(static_cast<uint32_t>(m.{part.name}.size()));"]
    if part.kind.endswith("#"):
        own = part.kind.rstrip("#")
        item = f"Put{own}" if own in rows.records else "PutItem"
        count = [] if part.counted else [f"  w.Put(static_cast<uint32_t>(m.{part.name}.size()));"]
        return [*count, f"  for (const auto& one : m.{part.name}) {item}(w, one);"]
    lines = [f"  {_written(rows, part)}"]
    if part.minor:
        return [f"  if (m.minor >= {constant(part.minor)}) {lines[0].strip()}"]
    if part.optional:
        return [f"  if (!m.{part.name}.empty()) {lines[0].strip()}"]
    return lines


def _written(rows: Messages, part: Part) -> str:
    """Returns the statement that writes a field."""
    value = f"m.{part.name}"
    if part.kind == "text":
        text = f"CleanText({value}, {constant(part.most)})" if part.cleaned else value
        return f"PutText(w, {text});"
    if part.kind.endswith("[]"):
        row, size = _row(rows, part.kind)
        return f"PutRows(w, {value}, {size}, Put{row});"
    form = _FORMS.get(part.kind, _OTHER).put or "w.Put({value});"
    return form.format(value=value, most=constant(part.most))


def _row(rows: Messages, kind: str) -> tuple[str, int]:
    """Returns the name of a row's functions, and its size in bytes."""
    name = kind.removesuffix("[]")
    if name in SCALAR_BYTES:
        return name.upper(), SCALAR_BYTES[name]
    return name, sum(SCALAR_BYTES[part.kind] for part in rows.records[name].parts)


def get_lines(rows: Messages, message: Message) -> list[str]:
    name = message.class_name
    if not message.parts:
        return [f"bool Get(Reader& r, {name}*) {{ return r.done(); }}"]
    lines = []
    for part in message.parts:
        lines += _get_part(rows, part)
        if message.stops and message.stops[0] == part.name:
            _, other, value = message.stops
            lines.append(f"  if (!r.ok() || m->{other} != {constant(value)}) return r.ok();")
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
    if part.kind == "count":
        return _get_count(part)
    if part.kind.endswith("#"):
        return [*([] if part.counted else _get_count(part)), *_get_items(rows, part)]
    good = _taken(rows, part)
    if not good:
        return [f"  r.Get(&{to});"]
    if part.minor:
        return [f"  if (m->minor >= {constant(part.minor)} && !{good}) return false;"]
    if part.optional:
        # An empty list must have no bytes, so that every accepted message has one form only.
        return [
            f"  {to}.clear();",
            f"  if (!r.done() && (!{good} || {to}.empty())) return false;",
        ]
    return [f"  if (!{good}) return false;"]


def _get_count(part: Part) -> list[str]:
    count = f"{part.name}_count"
    return [
        f"  uint32_t {count} = 0;",
        f"  r.Get(&{count});",
        f"  if (!r.ok() || {count} > {constant(part.most)}) return false;",
    ]


def _get_items(rows: Messages, part: Part) -> list[str]:
    """Returns the loop that reads a list. It makes room for an item only when its turn comes, so
    that a wrong count takes no memory.
    """
    own = part.kind.rstrip("#")
    item = f"Read{own}" if own in rows.records else "GetItem"
    return [
        f"  m->{part.name}.clear();",
        f"  for (uint32_t i = 0; i < {part.name}_count; ++i) {{",
        f"    if (!{item}(r, &m->{part.name}.emplace_back())) return false;",
        "  }",
    ]


def _taken(rows: Messages, part: Part) -> str:
    """Returns the expression that reads a field and is false if it is malformed; "": none."""
    value, most = f"m->{part.name}", constant(part.most)
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
            values = [*rows.enumerations[part.kind].values.values()]
            first = f" - {values[0]}" if values[0] else ""
            checks.append(f"static_cast<unsigned>({value}){first} < {len(values)}")
        elif part.kind == "bool":
            checks.append(f"{part.name} <= 1")
        elif part.kind == "text" and part.least:
            checks.append(f"{value}.size() >= {part.least}")
        elif part.kind in SCALAR_BYTES:
            checks += [f"{value} >= {part.least}"] if part.least else []
            checks += [f"{value} <= {constant(part.most)}"] if part.most else []
        if part.needs:
            checks.append(f"({value}.empty() || m->{part.needs})")
    return [f"  return {' && '.join(checks)};"]
