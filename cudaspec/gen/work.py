"""Generates work.gen.h and .cc: facts of a command that the executor needs before it decodes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec import length
from cudaspec.gen.source import c_type, header, source
from cudaspec.model import WorkBound, WorkKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudaspec.model import Work
    from cudaspec.rows import CommandRow, Spec

_DECLARATIONS = """
struct CommandWork {
  WorkKind kind = WorkKind::kNone;
  WorkBound bound = WorkBound::kLease;
  uint64_t bytes = 0;     // of a copy or set; UINT64_MAX: the length does not fit 64 bits
  uint64_t function = 0;  // of a launch: one of function and kernel is 0
  uint64_t kernel = 0;
  uint64_t exec = 0;  // of the launch of a graph
};

// Returns the device work of an encoded request. `bulk_bytes` follow the head in the frame. A head
// that is too short has fields of 0; the handler refuses it later.
CommandWork WorkOf(Opcode opcode, wire::ByteView head, uint64_t bulk_bytes);

// Returns the event that an encoded request creates, changes or asks for; 0: none.
uint64_t EventOf(Opcode opcode, wire::ByteView head);
"""
_FIELD = """
namespace {

template <typename T>
T Field(wire::ByteView head, size_t at) {
  T value{};
  if (head.size >= at + sizeof value) std::memcpy(&value, head.data + at, sizeof value);
  return value;
}

}  // namespace
"""


def work_h(spec: Spec) -> str:
    del spec  # the declarations are the same for every specification
    return header(
        [
            "namespace rgpu {",
            "",
            "// The measurements from which device time is predicted. kNone: no device work.",
            f"enum class WorkKind : uint8_t {{ kNone, {_enumerators(WorkKind)} }};",
            "",
            "// The most bytes that one prediction counts.",
            f"enum class WorkBound : uint8_t {{ {_enumerators(WorkBound)} }};",
            *_DECLARATIONS.splitlines(),
            "",
            "}  // namespace rgpu",
        ],
        ["<cstdint>", "", '"gen/opcodes.gen.h"', '"rgpu_common/native/wire/codec.h"'],
    )


def work_cc(spec: Spec) -> str:
    commands = spec.commands.values()
    return source(
        [
            "namespace rgpu {",
            *_FIELD.splitlines()[1:],
            "",
            "CommandWork WorkOf(Opcode opcode, wire::ByteView head, uint64_t bulk_bytes) {",
            *_switch("CommandWork{}", ((c, _work(c, c.row.work)) for c in commands if c.row.work)),
            "}",
            "",
            "uint64_t EventOf(Opcode opcode, wire::ByteView head) {",
            *_switch(
                "0",
                ((c, _field(c, c.row.concerns)) for c in commands if c.row.concerns not in _NONE),
            ),
            "}",
            "",
            "}  // namespace rgpu",
        ],
        ['"gen/work.gen.h"', "", "<cstring>", "", '"rgpu_common/native/base/lengths.h"'],
    )


_NONE = ("", "none")


def _switch(other: str, cases: Iterable[tuple[CommandRow, str]]) -> list[str]:
    # `other` answers for the commands whose rows say that they have nothing.
    lines = [
        line
        for command, answer in cases
        for line in (f"    case Opcode::{command.name}:", f"      return {answer};")
    ]
    return ["  switch (opcode) {", *lines, "    default:", f"      return {other};", "  }"]


def _work(command: CommandRow, work: Work) -> str:
    start = f"WorkKind::{_name(work.kind)}, WorkBound::{_name(work.bound)}"
    if work.kind is WorkKind.LAUNCH:
        operands = f"{_field(command, 'function')}, {_field(command, 'kernel')}"
        return f"{{{start}, 0, {operands}, 0}}"
    if work.kind is WorkKind.GRAPH:
        return f"{{{start}, 0, 0, 0, {_field(command, 'exec')}}}"
    return f"{{{start}, {length.cpp(work.bytes, lambda name: _operand(command, name))}, 0, 0, 0}}"


def _operand(command: CommandRow, name: str) -> str:
    if name == "bulk" and command.row.bulk == "request":
        return "bulk_bytes"
    return f"uint64_t{{{_field(command, name)}}}"


def _field(command: CommandRow, name: str) -> str:
    kind = next(f.kind for f in command.request if f.name == name)
    return f"Field<{c_type(kind)}>(head, {command.offset(name)})"


def _name(value: WorkKind | WorkBound) -> str:
    words: str = value.value
    return "k" + words.title().replace(" ", "")


def _enumerators(kind: type[WorkKind | WorkBound]) -> str:
    return ", ".join(_name(value) for value in kind)
