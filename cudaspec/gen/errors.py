"""Generates errors.gen.h and .cc: names and strings of CUresult."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec.gen.source import header, source

if TYPE_CHECKING:
    from cudaspec.rows import Spec


def errors_h(spec: Spec) -> str:
    del spec  # the values are in cuda_abi.gen.h
    return header(
        [
            "namespace rgpu {",
            "",
            "// The texts of cuGetErrorName and cuGetErrorString; null for an unknown value.",
            "const char* ErrorName(CUresult result);",
            "const char* ErrorString(CUresult result);",
            "",
            "}  // namespace rgpu",
        ],
        ['"gen/cuda_abi.gen.h"'],
    )


def errors_cc(spec: Spec) -> str:
    def function(name: str, answer: str) -> list[str]:
        return [
            f"const char* {name}(CUresult result) {{",
            "  switch (result) {",
            *(f'    case {e.name}:\n      return "{getattr(e, answer)}";' for e in spec.errors),
            "  }",
            "  return nullptr;",
            "}",
        ]

    return source(
        [
            "namespace rgpu {",
            "",
            *function("ErrorName", "name"),
            "",
            *function("ErrorString", "text"),
            "",
            "}  // namespace rgpu",
        ],
        ['"gen/errors.gen.h"'],
    )
