"""Constant expressions as operands, against values worked out by C's rules."""

from __future__ import annotations

import struct

import pytest
from ptx.forms import Case, check

from rgpu_emu.ptx.constants import MAX_NESTED, MAX_TEXT, constant
from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.link import link

ALL = (1 << 64) - 1
VALUES = {
    "~0x2": ALL - 2,
    "!0": 1,
    "!7": 0,
    "- 5": ALL - 4,
    "(1 << 4) - 1": 15,
    "1 << 4 - 1": 8,
    "2 + 3 * 4 - 1": 13,
    "7 & 3 | 8 ^ 1": 3 | 9,
    "1 | 2": 3,
    "-7 / 2": -3,
    "-7 % 2": -1,
    "-1 < 0": 1,
    "-1 < 0U": 0,  # both unsigned
    "0xffffffffffffffff >> 60": 15,
    "-16 >> 2": -4,
    "(.u64) -16 >> 60": 15,
    "(.s64) 0xffffffffffffffff < 0": 1,
    "3 > 2 ? 10 : 20": 10,
    "0 ? 1 : 0 ? 2 : 3": 3,
    "1 && 0 || 2": 1,
    "2 == 2.0": 1,
    "1 << 64": 0,
    "010 + 0b11": 11,
}


@pytest.mark.parametrize("text", VALUES)
def test_integers(text: str) -> None:
    found = constant(text)
    assert found is not None
    assert found.float_bits == 0
    assert found.value % (1 << 64) == VALUES[text] % (1 << 64)


@pytest.mark.parametrize(
    ("text", "value"), [("1.5 * 2", 3.0), ("-(0f3F800000)", -1.0), ("1 / 4.0", 0.25)]
)
def test_doubles(text: str, value: float) -> None:
    found = constant(text)
    assert found is not None
    assert (found.float_bits, found.value) == (64, *struct.unpack("<Q", struct.pack("<d", value)))


@pytest.mark.parametrize(
    "text", ["", "5", "%r1 + 1", "a + 1", "1 +", "(1", "1)", "1 2", "1 ? 2", "~", "~" * MAX_TEXT,
             "(" * MAX_NESTED + "(1" + ")" * MAX_NESTED + ")"]
)  # fmt: skip
def test_what_is_none(text: str) -> None:
    assert constant(text) is None


@pytest.mark.parametrize("text", ["1 / 0", "1 % 0", "1.0 / 0", "~1.0", "1.0 & 1", "(.s64) 1.5"])
def test_what_has_no_value(text: str) -> None:
    with pytest.raises(PtxError, match="constant expression"):
        constant(text)


def test_the_deepest_is_read() -> None:
    deep = "(" * MAX_NESTED + "1+1" + ")" * MAX_NESTED
    found = constant(deep)
    assert found is not None
    assert found.value == 2


def test_operands() -> None:
    """Dr.Jit clears a bit of an address with `~0x2`."""
    cases = [
        Case("and.b64 {d}, {0}, ~0x2", "b64", ("b64",), lambda a: a & ~2),
        Case("or.b32 {d}, {0}, 1 | 2", "b32", ("b32",), lambda a: a | 3),
        Case("add.u32 {d}, {0}, (1 << 4) - 1", "u32", ("u32",), lambda a: a + 15),
    ]
    check(cases, 5)


def test_initial_values() -> None:
    text = """
        .version 7.0
        .target sm_80
        .address_size 64
        .global .u32 x[3] = {~0, 1 << 4, (2 + 3) * 4};
        .visible .entry k() { ret; }
    """
    variable = link([text]).modules[0].variables["x"]
    assert struct.unpack("<3I", variable.initial.ljust(12, b"\0")) == (0xFFFFFFFF, 16, 20)
