"""Generates abi_check.gen.cc: static_asserts that the specification agrees with the vendor's
cuda.h.

A test compiles it where a CUDA toolkit is installed. No part of the product includes cuda.h.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudaspec import model
from cudaspec.gen.source import source
from cudaspec.prototype import field_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudaspec.rows import CallRow, Spec

_GROWING = ("_MAX", "_NUM_OPTIONS", "_LIGHTWEIGHT_FLAGS")


def abi_check_cc(spec: Spec) -> str:
    return source(
        [
            "// With this macro cuda.h declares the older versions of its functions as well.",
            "#define __CUDA_API_VERSION_INTERNAL",
            "#include <cuda.h>",
            "#if __has_include(<cudaProfiler.h>)",
            "#include <cudaProfiler.h>",
            "#define RGPU_HAS_PROFILER",
            "#endif",
            "",
            "#include <cstddef>",
            "#include <type_traits>",
            "",
            "namespace {",
            "",
            *_errors(spec),
            *(line for declared in spec.types for line in _type(declared)),
            *_constants(spec),
            "",
            *_prototypes(c for c in spec.calls.values() if not _profiler(c)),
            "#ifdef RGPU_HAS_PROFILER",
            *_prototypes(c for c in spec.calls.values() if _profiler(c)),
            "#endif",
            "",
            "}  // namespace",
        ]
    )


def _assert(condition: str, grows: bool) -> str:
    """`grows`: newer headers may differ, because they add values or use reserved fields."""
    return f"static_assert({'CUDA_VERSION > 13000 || ' if grows else ''}{condition});"


def _errors(spec: Spec) -> Iterator[str]:
    for error in spec.errors:
        yield f"static_assert({error.name} == {error.value});"


def _type(declared: model.Type) -> Iterator[str]:
    match declared:
        case model.Enum("CUoutput_mode"):
            pass  # cudaProfiler.h
        case model.Enum(name, values, _):
            for key, value in values.items():
                grows = key.endswith(_GROWING)
                yield _assert(f"static_cast<long long>({key}) == {value}", grows)
            yield f"static_assert(sizeof({name}) == sizeof(int));"
        case model.Handle(name, tag):
            yield f"static_assert(std::is_same_v<{name}, struct {tag} *>);"
        case model.Alias(name, kind):
            yield f"static_assert(std::is_same_v<{name}, {kind}>);"
        case model.Callback(name, declaration):
            yield f"typedef {declaration.replace(f'(*{name})', f'(*Our_{name})')};"
            yield f"static_assert(std::is_same_v<{name}, Our_{name}>);"
        case model.Struct():
            yield from _struct(declared)
        case model.Opaque(name):
            yield f"using Our_{name} = ::{name};"


def _struct(declared: model.Struct) -> Iterator[str]:
    name = declared.name
    yield f"{'union' if declared.union else 'struct'} Our_{name} {{"
    yield from (f"  {text};" for text in declared.fields)
    yield "};"
    yield _assert(f"sizeof(Our_{name}) == sizeof({name})", name in declared.grows)
    for field in (f for text in declared.fields for f in field_names(text)):
        reserved = field.startswith("reserved")
        grows = reserved or field in declared.grows
        yield _assert(f"offsetof(Our_{name}, {field}) == offsetof({name}, {field})", reserved)
        yield _assert(f"sizeof(Our_{name}::{field}) == sizeof({name}::{field})", grows)


def _constants(spec: Spec) -> Iterator[str]:
    # Pointers are not constant expressions, so those constants are only compiled.
    for constant in spec.constants:
        if (
            constant.name != "CUDA_VERSION"
            and "*" not in constant.text
            and "CUstream" not in constant.text
        ):
            yield f"static_assert({constant.name} == {constant.text});"
        elif constant.name != "CUDA_VERSION":
            same = f"{constant.name} == {constant.text}"
            yield f"[[maybe_unused]] bool Same_{constant.name}() {{ return {same}; }}"


def _profiler(call: CallRow) -> bool:
    return call.name.startswith("cuProfiler")


def _prototypes(calls: Iterable[CallRow]) -> Iterator[str]:
    for call in calls:
        types = ", ".join(p.type for p in call.prototype.parameters)
        symbols = [call.name, call.name + call.row.twins] if call.row.twins else [call.name]
        for symbol in symbols:
            ours = f"CUresult (*)({types})"
            yield f"static_assert(std::is_same_v<decltype(&::{symbol}), {ours}>);"
