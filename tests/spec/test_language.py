"""The two small languages of the rows: lengths and C declarations."""

from __future__ import annotations

import pytest

from cudaspec import length
from cudaspec.prototype import field_name, field_names, parse_prototype, type_names


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("n", "@n"),
        ("4", "uint64_t{4}"),
        ("n * 4", "base::SaturatedProduct(@n, uint64_t{4})"),
        ("n*m + 1", "base::SaturatedSum(base::SaturatedProduct(@n, @m), uint64_t{1})"),
    ],
)
def test_cpp(expression: str, text: str) -> None:
    assert length.cpp(expression, lambda name: f"@{name}") == text


@pytest.mark.parametrize(
    "expression", ["", "+", "n +", "* n", "n n", "n - 1", "(n)", "n / 2", "n[0]", "n 4"]
)
def test_illegal(expression: str) -> None:
    with pytest.raises(ValueError, match="is not '\\+' and '\\*' over names and integers"):
        length.parse(expression)


def test_prototype() -> None:
    parsed = parse_prototype(
        "CUresult cuX(const CUuuid *id, void **extra, unsigned int n, char name[64])"
    )
    assert [(p.type, p.name, p.pointee) for p in parsed.parameters] == [
        ("const CUuuid *", "id", "CUuuid"),
        ("void **", "extra", "void *"),
        ("unsigned int", "n", ""),
        ("char *", "name", "char"),
    ]
    assert (
        parsed.declaration
        == "CUresult cuX(const CUuuid *id, void **extra, unsigned int n, char *name)"
    )
    assert parse_prototype("CUresult cuX(void)").parameter_list == "void"


def test_names_in_declarations() -> None:
    assert type_names("const CUuuid *") == {"CUuuid"}
    assert type_names("unsigned long long") == set()
    assert field_name("int maxGridSize[3]") == "maxGridSize"
    assert field_name("union { CUexecAffinitySmCount smCount; } param") == "param"
    assert field_names("int maxGridSize[3]") == ("maxGridSize",)
    assert field_names("union { long long pad[29]; CUevent event; }") == ("pad", "event")
