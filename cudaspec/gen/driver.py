"""Generates driver_table.gen.h and .cc: the driver as function pointers, looked up in a library."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.source import c_bool, header, source

if TYPE_CHECKING:
    from cudaspec.rows import Spec

_COMMENT = """
// The driver functions that the executor calls. Those marked optional are null if an older driver
// lacks them.
"""
_LOAD = """
bool LoadDriverTable(void* library, DriverTable* table, const char** missing) {
  const struct {
    const char* name;
    void** pointer;
    bool optional;
  } rows[] = {
"""
_RESOLVE = """
  };
  for (const auto& row : rows) {
    *row.pointer = dlsym(library, row.name);
    if (*row.pointer == nullptr && !row.optional) {
      *missing = row.name;
      return false;
    }
  }
  return true;
}

}  // namespace rgpu
"""


def driver_table_h(spec: Spec) -> str:
    return header(
        [
            "namespace rgpu {",
            "",
            *_COMMENT.splitlines()[1:],
            "struct DriverTable {",
            *(
                f"  decltype(&::{name}) {name} = nullptr;"
                + ("  // optional" if name in spec.driver_optional else "")
                for name in spec.driver
            ),
            "};",
            "",
            "// Resolves every function from `library`, a handle of dlopen.",
            "// On failure `*missing` names the first function that the library lacks.",
            "bool LoadDriverTable(void* library, DriverTable* table, const char** missing);",
            "",
            "}  // namespace rgpu",
        ],
        ['"gen/cuda_abi.gen.h"'],
    )


def driver_table_cc(spec: Spec) -> str:
    rows = [
        f'      {{"{name}", reinterpret_cast<void**>(&table->{name}), '
        f"{c_bool(name in spec.driver_optional)}}},"
        for name in spec.driver
    ]
    return source(
        ["namespace rgpu {", *_LOAD.splitlines(), *rows, *_RESOLVE.splitlines()[1:]],
        ['"gen/driver_table.gen.h"', "", "<dlfcn.h>"],
    )
