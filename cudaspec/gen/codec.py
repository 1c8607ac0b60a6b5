"""Generates codec.gen.h: for each command the structs of its request and reply, Put, Get and
traits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.source import c_bool, c_type, header
from cudaspec.model import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cudaspec.rows import CommandRow, Field, Spec


def codec_h(spec: Spec) -> str:
    body = ["namespace rgpu {", ""]
    for command in spec.commands.values():
        body += _command(command)
    body += _visit(spec)
    return header(
        [*body, "}  // namespace rgpu"],
        ["<cstdint>", "", '"gen/opcodes.gen.h"', '"rgpu_common/native/wire/codec.h"'],
    )


def _command(command: CommandRow) -> list[str]:
    row, name = command.row, command.name
    return [
        *_struct(f"{name}_Request", command.request, row.names),
        *_struct(f"{name}_Reply", command.reply),
        f"struct op_{name} {{",
        f"  using Request = {name}_Request;",
        f"  using Reply = {name}_Reply;",
        f"  static constexpr Opcode kOpcode = Opcode::{name};",
        f'  static constexpr const char* kName = "{name}";',
        f"  static constexpr uint32_t kLayoutHash = 0x{command.layout_hash:08x};",
        f"  static constexpr bool kIsCall = {c_bool(command.is_call)}, "
        f"kParks = {c_bool(row.mode is Mode.PARKED)}, kReports = {c_bool(row.reports)};",
        f"  static constexpr bool kDestroys = {c_bool(row.destroys)}, "
        f"kDrains = {c_bool(row.drains)}, kReaped = {c_bool(row.reaped)};",
        "};",
        "",
    ]


def _visit(spec: Spec) -> list[str]:
    return [
        "// Calls `visitor` with the traits of `opcode`; returns false if it is unknown.",
        "template <typename Visitor>",
        "bool VisitCommand(uint16_t opcode, Visitor&& visitor) {",
        "  switch (static_cast<Opcode>(opcode)) {",
        *(
            line
            for c in spec.commands.values()
            for line in (
                f"    case Opcode::{c.name}:",
                f"      visitor(op_{c.name}{{}});",
                "      return true;",
            )
        ),
        "  }",
        "  return false;",
        "}",
        "",
    ]


def _struct(
    name: str, fields: Sequence[Field], names: Mapping[str, Mapping[str, int]] | None = None
) -> list[str]:
    if not fields:
        return [
            f"struct {name} {{}};",
            f"inline void Put(wire::Writer&, const {name}&) {{}}",
            f"inline bool Get(wire::Reader& r, {name}*) {{ return r.done(); }}",
        ]
    members = [f"  {c_type(f.kind)} {f.name}{'' if f.kind == 'bytes' else ' = 0'};" for f in fields]
    kinds = {f.name: c_type(f.kind) for f in fields}
    constants = [
        f"  static constexpr {kinds[field]} {constant} = {value};  // of {field}"
        for field, values in (names or {}).items()
        for constant, value in values.items()
    ]
    return [
        f"struct {name} {{",
        *constants,
        *members,
        "};",
        f"inline void Put(wire::Writer& w, const {name}& m) {{",
        *(f"  w.Put(m.{f.name});" for f in fields),
        "}",
        f"inline bool Get(wire::Reader& r, {name}* m) {{",
        *(f"  r.Get(&m->{f.name});" for f in fields),
        "  return r.done();",
        "}",
    ]
