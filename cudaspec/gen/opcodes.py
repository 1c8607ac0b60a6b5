"""Generates opcodes.gen.h and .cc: the commands' numbers and what the channel must know about
each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.source import c_bool, header, source
from cudaspec.model import DEVICE_TIME, Mode

if TYPE_CHECKING:
    from cudaspec.rows import CommandRow, Spec

_MODES = {
    Mode.POSTED: "CommandMode::kPosted",
    Mode.DELIVERED: "CommandMode::kDelivered",
    Mode.CALL: "CommandMode::kCall",
    Mode.PARKED: "CommandMode::kParked",
}
_BULK = {"": "BulkSide::kNone", "request": "BulkSide::kRequest", "reply": "BulkSide::kReply"}

_FIND = """
namespace rgpu {

const OpcodeInfo* FindOpcode(uint16_t opcode) {
  const auto* at = std::lower_bound(
      kOpcodes.begin(), kOpcodes.end(), opcode, [](const OpcodeInfo& info, uint16_t wanted) {
        return static_cast<uint16_t>(info.opcode) < wanted;
      });
  if (at == kOpcodes.end() || static_cast<uint16_t>(at->opcode) != opcode) return nullptr;
  return at;
}

}  // namespace rgpu
"""


def opcodes_h(spec: Spec) -> str:
    commands = spec.commands.values()
    return header(
        [
            "namespace rgpu {",
            "",
            "enum class Opcode : uint16_t {",
            *(f"  {c.name} = 0x{c.opcode:04x}," for c in commands),
            "};",
            "",
            "enum class CommandMode : uint8_t { kPosted, kDelivered, kCall, kParked };",
            "enum class BulkSide : uint8_t { kNone, kRequest, kReply };",
            "",
            "struct OpcodeInfo {",
            "  Opcode opcode;",
            "  const char* name;",
            "  CommandMode mode;",
            "  BulkSide bulk;",
            "  uint32_t layout_hash;  // CRC-32 of the canonical text, compared in the handshake",
            "  bool reports;          // returns the thread's deferred error if there is one",
            "  bool destroys;         // is executed even then",
            "  bool drains;           // returns the deferred errors of all threads",
            "  bool reaped;           // the reaper carries it out",
            "  bool gated;            // device work: waits for the token",
            "  bool passes_gate;      // may pass work that waits for the token",
            "",
            "  constexpr bool is_call() const { return mode >= CommandMode::kCall; }",
            "};",
            "",
            "// All commands, by opcode.",
            f"inline constexpr std::array<OpcodeInfo, {len(spec.commands)}> kOpcodes = {{{{",
            *(_info(c) for c in commands),
            "}};",
            "inline constexpr std::span<const OpcodeInfo> kOpcodeTable{kOpcodes};",
            "",
            "// Returns null if this release does not know the opcode.",
            "const OpcodeInfo* FindOpcode(uint16_t opcode);",
            "",
            "}  // namespace rgpu",
        ],
        ["<array>", "<cstdint>", "<span>"],
    )


def _info(c: CommandRow) -> str:
    row = c.row
    gated = any(meter in DEVICE_TIME for meter in row.charges)
    values = (row.reports, row.destroys, row.drains, row.reaped, gated, row.passes_gate)
    flags = ", ".join(c_bool(flag) for flag in values)
    return (
        f'    {{Opcode::{c.name}, "{c.name}", {_MODES[row.mode]}, {_BULK[row.bulk]}, '
        f"0x{c.layout_hash:08x}, {flags}}},"
    )


def opcodes_cc(spec: Spec) -> str:
    del spec  # the table is in the header
    return source(_FIND.splitlines()[1:], ['"gen/opcodes.gen.h"', "<algorithm>"])
