"""Generates NAME_procaddr.gen.cc: the table for cuGetProcAddress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.exports import Library, base_symbol
from cudaspec.gen.source import source

if TYPE_CHECKING:
    from cudaspec.model import Symbols
    from cudaspec.rows import Spec

_ROW = """
// kNone: this release does not implement the version.
constexpr uint32_t kNone = 0xffffffff;
struct Row {
  const char* name;
  int version;
  const void* symbol;
  uint32_t index;
  const void* per_thread;
  uint32_t per_thread_index;
};

// Sorted by name, then version.
const Row kRows[] = {
"""
_FIND = """
};
constexpr uint64_t kPerThread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;

}  // namespace

const void* FindProc(const char* name, int version, uint64_t flags, int* status, CallId* call) {
  const auto* row = std::lower_bound(
      std::begin(kRows), std::end(kRows), name,
      [](const Row& r, const char* wanted) { return std::strcmp(r.name, wanted) < 0; });
  const Row* best = nullptr;
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  for (; row != std::end(kRows) && std::strcmp(row->name, name) == 0; ++row) {
    *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    if (row->version <= version) best = row;
  }
  if (best == nullptr) return nullptr;
  const bool twin = (flags & kPerThread) != 0 && best->per_thread != nullptr;
  const void* found = twin ? best->per_thread : best->symbol;
  *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (found == nullptr) return nullptr;
  *status = CU_GET_PROC_ADDRESS_SUCCESS;
  if (call != nullptr) *call = static_cast<CallId>(twin ? best->per_thread_index : best->index);
  return found;
}
"""


def procaddr_cc(spec: Spec, library: Library) -> str:
    """Returns the table: all versions of each name of which the library implements at least one."""
    index = {symbol: at for at, symbol in enumerate(spec.exported)}
    rows = []
    for names in spec.symbols:
        if any(symbol in library.implemented for _, symbol in names.versions):
            rows += [_proc_row(library, index, names, v, s) for v, s in names.versions]
    return source(
        [
            *_declare_twins(spec, library),
            "",
            f"namespace {library.namespace} {{",
            "namespace {",
            *_ROW.splitlines(),
            *rows,
            *_FIND.splitlines()[1:],
            "",
            f"}}  // namespace {library.namespace}",
        ],
        ["<algorithm>", "<cstring>", "<iterator>", "", f'"gen/{library.name}_calls.gen.h"'],
    )


def _proc_row(
    library: Library, index: dict[str, int], names: Symbols, version: int, symbol: str
) -> str:
    def pair(exported: str) -> str:
        if not exported or base_symbol(exported) not in library.implemented:
            return "nullptr, kNone"
        return f"reinterpret_cast<const void*>(&::{exported}), {index[exported]}"

    twin = next((t for t in names.twins if base_symbol(t) == symbol), "")
    return f'    {{"{names.name}", {version}, {pair(symbol)}, {pair(twin)}}},'


def _declare_twins(spec: Spec, library: Library) -> list[str]:
    twins = [
        t for names in spec.symbols for t in names.twins if base_symbol(t) in library.implemented
    ]
    return [
        f'extern "C" CUresult {t}({spec.calls[base_symbol(t)].prototype.parameter_list});'
        for t in twins
    ]
