"""The two small languages of the rows: lengths and C declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudaspec import length
from cudaspec.prototype import field_name, parse_prototype, type_names

LIMIT = 1 << 64


@pytest.mark.parametrize(
    ("expression", "value"),
    [("n", 6), ("4", 4), ("n * 4", 24), ("n*m + 1", 43), ("2 + n * m * 2", 86)],
)
def test_evaluate(expression: str, value: int) -> None:
    assert length.evaluate(expression, {"n": 6, "m": 7}) == value


@pytest.mark.parametrize(
    "expression", ["", "+", "n +", "* n", "n n", "n - 1", "(n)", "n / 2", "n[0]", "n 4"]
)
def test_illegal(expression: str) -> None:
    with pytest.raises(ValueError, match="is not '\\+' and '\\*' over names and integers"):
        length.parse(expression)


@given(st.integers(0, LIMIT - 1), st.integers(0, LIMIT - 1), st.integers(0, LIMIT - 1))
def test_overflow_is_an_error_and_never_a_small_number(a: int, b: int, c: int) -> None:
    exact = a * b + c
    if a * b < LIMIT and exact < LIMIT:
        assert length.evaluate("a * b + c", {"a": a, "b": b, "c": c}) == exact
    else:
        with pytest.raises(OverflowError):
            length.evaluate("a * b + c", {"a": a, "b": b, "c": c})


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
