"""Generates cuda_abi.gen.h: our own declaration of the public ABI, spelled as in cuda.h, for C
and C++.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec import model
from cudaspec.gen.source import BANNER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cudaspec.rows import Spec


def cuda_abi_h(spec: Spec) -> str:
    lines = [
        BANNER
        + "// The public ABI of the CUDA driver API.  Never include it together with cuda.h.",
        "#ifndef RGPU_CUDA_ABI_GEN_H_",
        "#define RGPU_CUDA_ABI_GEN_H_",
        "",
        "#ifdef __cuda_cuda_h__",
        '#error "cuda_abi.gen.h and cuda.h declare the same names: include one of them."',
        "#endif",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "/* Any integer is a legal value in C++: arguments come from other programs. */",
        "#ifdef __cplusplus",
        "#define RGPU_ENUM_INT : int",
        "#define RGPU_ENUM_UNSIGNED : unsigned int",
        'extern "C" {',
        "#else",
        "#define RGPU_ENUM_INT",
        "#define RGPU_ENUM_UNSIGNED",
        "#endif",
        "",
        *_declarations(spec),
        "",
        *(f"{c.prototype.declaration};" for c in spec.declared),
        "",
        "#ifdef __cplusplus",
        '}  // extern "C"',
        "#endif",
        "#endif  // RGPU_CUDA_ABI_GEN_H_",
    ]
    return "\n".join(lines) + "\n"


def _declarations(spec: Spec) -> Iterator[str]:
    for constant in spec.constants:
        yield f"#define {constant.name} {constant.text}"
    yield from (
        "",
        *enumeration("CUresult", "cudaError_enum", {e.name: e.value for e in spec.errors}),
    )
    for declared in spec.types:
        yield from declare(declared)


def declare(declared: model.Type) -> Iterator[str]:
    """Returns the lines that declare a type."""
    match declared:
        case model.Handle(name, tag):
            yield f"typedef struct {tag} *{name};"
        case model.Alias(name, kind):
            yield f"typedef {kind} {name};"
        case model.Callback(_, declaration):
            yield f"typedef {declaration};"
        case model.Enum(name, values, tag):
            yield from enumeration(name, tag or f"{name}_enum", values)
        case model.Struct(name, tag, fields, union):
            yield f"typedef {'union' if union else 'struct'} {tag} {{"
            yield from (f"  {text};" for text in fields)
            yield f"}} {name};"
        case model.Opaque():
            pass


def enumeration(name: str, tag: str, values: Mapping[str, int]) -> Iterator[str]:
    """Returns the lines that declare an enumeration."""
    base = "RGPU_ENUM_INT" if min(values.values()) < 0 else "RGPU_ENUM_UNSIGNED"
    yield f"typedef enum {tag} {base} {{"
    yield from (f"  {key} = {value}," for key, value in values.items())
    yield f"}} {name};"
