"""One kernel that executes many instructions on many inputs, and exact references for what they must give.

A case is an instruction with its operand types; thread i executes it on the i-th input of each operand, as raw bits.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from ptx.harness import HEADER, Kernel

SAMPLES = 128
BATCH = 25  # cases of one kernel
INT = ("s16", "u16", "s32", "u32", "s64", "u64")
Reference = Callable[..., int | tuple[int, ...] | None]
EDGES = {
    1: [0, 1],
    8: [0, 1, 0x7F, 0x80, 0xFF],
    16: [0, 1, 2, 0x7FFF, 0x8000, 0xFFFF, 0x8001],
    32: [0, 1, 2, 31, 32, 33, 63, 64, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80000001],
    64: [0, 1, 2, 63, 64, 65, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF, 1 << 32],
}
FLOAT_EDGES = {
    16: [
        0.0,
        -0.0,
        1.0,
        -1.0,
        65504.0,
        6e-8,
        -6e-5,
        float("inf"),
        -float("inf"),
        float("nan"),
        0.333,
        2049.0,
    ],
    32: [
        0.0,
        -0.0,
        1.0,
        -1.0,
        3.4028235e38,
        1e-45,
        -1.1e-38,
        float("inf"),
        -float("inf"),
        float("nan"),
        1 / 3,
        0.5,
        2.5,
        -0.5,
        1.5,
        16777217.0,
        1.1754944e-38,
        2147483648.0,
        -2147483648.0,
        4294967296.0,
    ],
    64: [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.7976931348623157e308,
        5e-324,
        -2.2e-308,
        float("inf"),
        -float("inf"),
        float("nan"),
        1 / 3,
        0.5,
        2.5,
        -0.5,
        1.5,
        9007199254740993.0,
        9.223372036854775807e18,
        -9.3e18,
        1.9e19,
    ],
}


@dataclass(frozen=True)
class Case:
    """`text` is the instruction with {d}, {p}, {0}, {1}.. for operands; the reference takes raw source bits.

    The reference answers the raw destination bits, (d, p) for two destinations, or None where anything is right.
    """

    text: str
    dst: str
    src: tuple[str, ...]
    reference: Reference
    near: int = 0  # allowed distance in units of the last place, for approximations

    @property
    def name(self) -> str:
        return self.text.split(None, 1)[0]


def width(kind: str) -> int:
    """Register bits of a type name such as b32, f16, bf16x2, pred."""
    if kind == "pred":
        return 1
    double = 2 if kind.endswith("x2") else 1
    return (
        int(
            kind.removesuffix("x2")
            .removeprefix("b" if kind.startswith("bf") else "")
            .lstrip("bsuf")
        )
        * double
    )


def inputs_for(kind: str, seed: int) -> list[int]:
    """Raw bits: edges first, combined differently for each operand, then random ones."""
    rng = np.random.default_rng(seed)
    bits = width(kind)
    base = kind.removesuffix("x2")
    if base.startswith(("f", "bf")):
        return _float_inputs(base, kind.endswith("x2"), rng)
    edges = EDGES[bits]
    out = [edges[int(rng.integers(len(edges)))] for _ in range(SAMPLES // 2)]
    out += [
        int(rng.integers(0, 1 << 63)) * 2 + int(rng.integers(2)) & (1 << bits) - 1
        for _ in range(SAMPLES // 4)
    ]
    out += [int(rng.integers(0, min(1 << bits, 80))) for _ in range(SAMPLES - len(out))]
    return out


def _float_inputs(base: str, pair: bool, rng: np.random.Generator) -> list[int]:
    bits = width(base)

    def one() -> int:
        pick = rng.random()
        edges = FLOAT_EDGES[32 if base == "bf16" else bits]
        if pick < 0.35:
            value = edges[int(rng.integers(len(edges)))]
        elif pick < 0.75:
            value = float(rng.normal()) * 10.0 ** int(rng.integers(-3, 4))
        else:
            value = math.ldexp(float(rng.normal()), int(rng.integers(-8, 12 if bits == 16 else 30)))
        return encode(value, base)

    if pair:
        return [one() | one() << 16 for _ in range(SAMPLES)]
    return [one() for _ in range(SAMPLES)]


def encode(value: float, kind: str) -> int:
    """A double in a type's bits, rounded to nearest."""
    if kind == "bf16":
        raw = encode(value, "f32")
        if math.isnan(value):
            return 0x7FFF
        return raw + 0x7FFF + (raw >> 16 & 1) >> 16
    with np.errstate(over="ignore"):
        code = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
        return int.from_bytes(code(value).tobytes(), "little")


def decode(raw: int, kind: str) -> float:
    """The number that bits mean."""
    if kind == "bf16":
        return float(struct.unpack("<f", struct.pack("<I", raw << 16))[0])
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[kind]
    return float(struct.unpack(code, raw.to_bytes(width(kind) // 8, "little"))[0])


_FORMAT = {
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "f32": (24, -126, 127),
    "f64": (53, -1022, 1023),
}


def round_exact(value: Fraction, kind: str, mode: str, *, negative_zero: bool = False) -> int:
    """Bits of an exact rational rounded once by rn, rz, rm or rp: an independent model of IEEE 754 rounding."""
    precision, least, greatest = _FORMAT[kind]
    bits = width(kind)
    sign = 1 if value < 0 or (value == 0 and negative_zero) else 0
    magnitude = abs(value)
    if magnitude == 0:
        return sign << bits - 1
    exponent = max(_floor_log2(magnitude), least)
    unit = Fraction(2) ** (exponent - precision + 1)
    whole = magnitude // unit
    rest = magnitude - whole * unit
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole & 1),
        "rz": False,
        "rm": bool(sign) and rest > 0,
        "rp": not sign and rest > 0,
    }[mode]
    whole = int(whole) + int(up)
    if whole * unit >= Fraction(2) ** (greatest + 1):
        infinite = mode == "rn" or (mode == "rp" and not sign) or (mode == "rm" and sign)
        field = (greatest * 2 + 1) << precision - 1
        return sign << bits - 1 | (field if infinite else field - 1)
    raw = (exponent - least) * (1 << precision - 1) + whole
    return sign << bits - 1 | raw


def _floor_log2(value: Fraction) -> int:
    guess = value.numerator.bit_length() - value.denominator.bit_length()
    return guess if Fraction(2) ** guess <= value else guess - 1


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def bits(kind: str) -> int:
    """The width of a type such as s16."""
    return int(kind[1:])


def value(raw: int, kind: str) -> int:
    """The number that the bits are in an integer type."""
    return signed(raw, bits(kind)) if kind[0] == "s" else raw


def typed(kind: str, compute: Reference) -> Reference:
    """A reference on values instead of bits."""
    return lambda *raw: compute(*(value(r, kind) for r in raw))


def build(cases: Sequence[Case]) -> str:
    """The kernel's PTX."""
    lines = [
        HEADER,
        ".visible .entry forms(.param .u64 in, .param .u64 out)\n{\n",
        ".reg .b64 %in, %out, %a, %t;\n.reg .b32 %i;\n",
        "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %i, %tid.x;\nmul.wide.u32 %t, %i, 8;\n",
        "add.u64 %in, %in, %t;\nadd.u64 %out, %out, %t;\n",
    ]
    slot = 0
    for number, case in enumerate(cases):
        lines.append(
            "{\n.reg .pred %pd, %px, %p0, %p1, %p2, %p3;\n.reg .b32 %w, %w0, %w1, %w2, %w3;\n"
        )
        names = []
        for k, kind in enumerate(case.src):
            at = (slot + k) * SAMPLES * 8
            if kind == "pred":
                lines.append(f"ld.global.u32 %w{k}, [%in+{at}];\nsetp.ne.u32 %p{k}, %w{k}, 0;\n")
                names.append(f"%p{k}")
            else:
                lines.append(
                    f".reg .b{width(kind)} %s{k};\nld.global.b{width(kind)} %s{k}, [%in+{at}];\n"
                )
                names.append(f"%s{k}")
        slot += len(case.src)
        lines += _execute(case, names, number)
        lines.append("}\n")
    return "".join([*lines, "ret;\n}\n"])


def _execute(case: Case, names: list[str], number: int) -> list[str]:
    at = number * 2 * SAMPLES * 8
    lines = []
    target = "%pd"
    if case.dst != "pred":
        lines.append(f".reg .b{width(case.dst)} %d;\n")
        target = "%d"
    lines.append(case.text.format(*names, d=target, p="%px") + ";\n")
    if case.dst == "pred":
        lines.append(f"selp.u32 %w, 1, 0, %pd;\nst.global.u32 [%out+{at}], %w;\n")
    else:
        lines.append(f"st.global.b{width(case.dst)} [%out+{at}], %d;\n")
    if "{p}" in case.text:
        lines.append(f"selp.u32 %w, 1, 0, %px;\nst.global.u32 [%out+{at + SAMPLES * 8}], %w;\n")
    return lines


def check(cases: Sequence[Case], seed: int = 0) -> None:
    """Runs all cases and compares each result with its reference.

    Several kernels, because the time to compile one grows faster than its length.
    """
    for first in range(0, len(cases), BATCH):
        _check_together(cases[first : first + BATCH], seed + first)


def _check_together(cases: Sequence[Case], seed: int) -> None:
    kernel = Kernel(build(cases))
    data = [
        inputs_for(kind, seed * 1000 + n * 10 + k)
        for n, case in enumerate(cases)
        for k, kind in enumerate(case.src)
    ]
    source = np.array(data, np.uint64) if data else np.zeros((1, SAMPLES), np.uint64)
    out = np.zeros((len(cases), 2, SAMPLES), np.uint64)
    place = kernel.arena.put(out)
    kernel.launch((1,), (SAMPLES,), np.uint64(kernel.arena.put(source)), np.uint64(place))
    got = kernel.arena.get(place, out)
    row = 0
    for case, (first, second) in zip(cases, got, strict=True):
        columns = (
            list(zip(*data[row : row + len(case.src)], strict=True)) if case.src else [()] * SAMPLES
        )
        row += len(case.src)
        for values, have, extra in zip(columns, first.tolist(), second.tolist(), strict=True):
            _compare(case, values, have, extra)


def _compare(case: Case, values: tuple[int, ...], have: int, extra: int) -> None:
    want = case.reference(*values)
    if want is None:
        return
    inputs = ", ".join(hex(v) for v in values)
    if isinstance(want, tuple):
        assert extra == want[1], f"{case.text} ({inputs}): predicate {extra}, not {want[1]}"
        want = want[0]
    mask = (1 << width(case.dst)) - 1
    have, want = have & mask, want & mask
    if have == want or _both_nan(case.dst, have, want):
        return
    distance = abs(signed(have, width(case.dst)) - signed(want, width(case.dst)))
    assert distance <= case.near, f"{case.text} ({inputs}): {have:#x}, not {want:#x}"


def _both_nan(kind: str, have: int, want: int) -> bool:
    if kind.endswith("x2"):
        base = kind.removesuffix("x2")
        return all(
            h == w or _both_nan(base, h, w)
            for h, w in ((have & 0xFFFF, want & 0xFFFF), (have >> 16, want >> 16))
        )
    if not kind.startswith(("f", "bf")):
        return False
    return math.isnan(decode(have, kind)) and math.isnan(decode(want, kind))
