"""Generates the exported side of a library with the driver's ABI. Shim and emulated device have the
same form.

A **Library** says which calls the functions of a namespace implement. `NAME_calls.gen.h` declares
these functions, `NAME_exports.gen.cc` defines the symbols, `NAME.map` is the version script.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudaspec.gen.guards import guards
from cudaspec.gen.source import header, source
from cudaspec.model import Mode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cudaspec.rows import CallRow, Spec

_TWINS = ("_ptds", "_ptsz")
_LOOKUPS = """
extern const char* const kCallNames[];
extern const uint32_t kCallCount;
// May return an earlier asynchronous error.
bool CallReports(uint32_t index);
// Why the call is not implemented; null if it is.
const char* CallReason(uint32_t index);
// The commands that the call may send; empty for a local call.
std::span<const Opcode> CallSends(uint32_t index);

// The result of cuGetProcAddress; null with *status SYMBOL_NOT_FOUND or VERSION_NOT_SUFFICIENT.
// `version` is 1000 * major + 10 * minor; bit 2 of `flags` asks for the per-thread twin.
const void* FindProc(const char* name, int version, uint64_t flags, int* status,
                     CallId* call = nullptr);
"""


@dataclass(frozen=True, slots=True)
class Library:
    """One library.

    namespace: its C++ namespace.
    entry: the header with its EntryGuard.
    nullable: by function, the pointers that may be null in this library only.
    """

    name: str
    namespace: str
    entry: str
    implemented: frozenset[str]
    nullable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def shim(spec: Spec) -> Library:
    """Returns the client's libcuda.so.1."""
    implemented = frozenset(c.name for c in spec.calls.values() if c.implemented or c.row.explains)
    return Library("shim", "rgpu::shim", "rgpu_client/shim/entry.h", implemented)


def emu(spec: Spec) -> Library:
    """Returns the emulated device."""
    entry = "rgpu_emu/device/entry.h"
    return Library("emu", "rgpu::emu", entry, spec.emulated, spec.emulated_nullable)


def base_symbol(symbol: str) -> str:
    """Returns the symbol without the suffix of a per-thread twin."""
    return symbol[:-5] if symbol.endswith(_TWINS) else symbol


def calls_h(spec: Spec, library: Library) -> str:
    """Declares the functions, the numbers of the symbols and the lookup for cuGetProcAddress."""
    bodies = [c for c in spec.calls.values() if c.name in library.implemented and not c.row.alias]
    return header(
        [
            f"namespace {library.namespace} {{",
            "",
            "// The functions behind the exports, written by hand.",
            *(f"{c.prototype.declaration};" for c in bodies),
            "",
            "// The exported symbols, sorted; EntryGuard gets this number.",
            "enum class CallId : uint32_t {",
            *(f"  {name} = {index}," for index, name in enumerate(spec.exported)),
            "};",
            *_LOOKUPS.splitlines()[1:],
            "",
            f"}}  // namespace {library.namespace}",
        ],
        ["<cstdint>", "<span>", "", '"gen/cuda_abi.gen.h"', '"gen/opcodes.gen.h"'],
    )


def exports_cc(spec: Spec, library: Library) -> str:
    """Defines every exported symbol."""
    body = ['#define RGPU_EXPORT extern "C" __attribute__((visibility("default")))', ""]
    for index, symbol in enumerate(spec.exported):
        body += _export(spec, library, index, symbol)
    body += ["", f"namespace {library.namespace} {{", "", "const char* const kCallNames[] = {"]
    body += [f'    "{symbol}",' for symbol in spec.exported]
    body += ["};", f"const uint32_t kCallCount = {len(spec.exported)};", ""]
    body += _call_facts(spec, library)
    body += ["", f"}}  // namespace {library.namespace}"]
    return source(body, [f'"gen/{library.name}_calls.gen.h"', f'"{library.entry}"'])


def _export(spec: Spec, library: Library, index: int, symbol: str) -> list[str]:
    call = spec.calls.get(base_symbol(symbol))
    if call is None or call.name not in library.implemented:
        error = call.row.error if call else "CUDA_ERROR_NOT_SUPPORTED"
        answer = f"return {library.namespace}::Unsupported({index}, {error});"
        return [f"RGPU_EXPORT CUresult {symbol}({_unnamed(spec, call, symbol)}) {{ {answer} }}"]
    body = spec.calls[call.body]
    flags = " | ".join(f"{library.namespace}::{flag}" for flag in _flags(call, symbol)) or "0"
    names, parameters = body.prototype.names, body.prototype.parameter_list
    nullable = library.nullable.get(body.name, ())
    unsupported = body.row.mode is Mode.UNSUPPORTED
    return [
        f"RGPU_EXPORT CUresult {symbol}({parameters}) {{",
        f"  {library.namespace}::EntryGuard entry({index}, {flags});",
        "  if (!entry.ok()) return entry.status();",
        *([] if unsupported else guards(body, library.namespace, nullable)),
        f"  return entry.Leave({library.namespace}::{call.body}({names}));",
        "}",
    ]


def _unnamed(spec: Spec, call: CallRow | None, symbol: str) -> str:
    if call is None or symbol != call.name or call not in spec.declared:
        return ""
    return ", ".join(p.type for p in call.prototype.parameters)


def _flags(call: CallRow, symbol: str) -> list[str]:
    flags = []
    if call.row.mode is not Mode.LOCAL or call.row.waits:
        flags.append("kMayWait")
    if not call.row.early:
        flags.append("kNeedsInit")
    if symbol.endswith(_TWINS):
        flags.append("kPerThreadStream")
    return flags


def _call_facts(spec: Spec, library: Library) -> list[str]:
    reports, sends, reasons = [], [], []
    for index, symbol in enumerate(spec.exported):
        call = spec.calls.get(base_symbol(symbol))
        if call is not None and call.row.reason:
            reasons.append(f"    case {index}:  // {symbol}")
            reasons.append(f'      return "{call.row.reason}";')
        if call is None or call.name not in library.implemented:
            continue
        row = spec.calls[call.body].row
        if row.reports:
            reports.append(f"    case {index}:  // {symbol}")
        needs = [name for name in row.sends if not spec.commands[name].row.optional]
        if needs:
            names = ", ".join(f"Opcode::{name}" for name in needs)
            sends.append(f"    case {index}: {{  // {symbol}")
            sends += [
                f"      static constexpr Opcode kSends[] = {{{names}}};",
                "      return kSends;",
                "    }",
            ]
    return [
        "bool CallReports(uint32_t index) {",
        "  switch (index) {",
        *reports,
        *(["      return true;"] if reports else []),
        "    default:",
        "      return false;",
        "  }",
        "}",
        "",
        "const char* CallReason(uint32_t index) {",
        "  switch (index) {",
        *reasons,
        "    default:",
        "      return nullptr;",
        "  }",
        "}",
        "",
        "std::span<const Opcode> CallSends(uint32_t index) {",
        "  switch (index) {",
        *sends,
        "    default:",
        "      return {};",
        "  }",
        "}",
    ]


def version_script(spec: Spec, library: Library) -> str:
    """Returns the linker's version script: it exports these names and makes the rest local."""
    names = [*spec.exported, *spec.extra_exports.get(library.name, ())]
    return "{\n  global:\n" + "".join(f"    {name};\n" for name in names) + "  local:\n    *;\n};\n"
