"""cvt between all types, in all rounding modes, with saturation."""

from __future__ import annotations

import math
from fractions import Fraction

from ptx.forms import Case, Reference, check, decode, encode, round_exact, signed, width

INT = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOAT = ("f16", "bf16", "f32", "f64")
MODES = ("rn", "rz", "rm", "rp")
ROUND = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}
NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": (1 << 63) - 1}


def holder(kind: str) -> str:
    """The register type for a type: there are no 8-bit registers."""
    return {"u8": "b16", "s8": "b16"}.get(kind, kind)


def value(raw: int, kind: str) -> int:
    n = int(kind[1:])
    raw &= (1 << n) - 1
    return signed(raw, n) if kind[0] == "s" else raw


def limits(kind: str) -> tuple[int, int]:
    n = int(kind[1:])
    return (-(1 << n - 1), (1 << n - 1) - 1) if kind[0] == "s" else (0, (1 << n) - 1)


def wrap(v: int, kind: str) -> int:
    """The value in the type, extended as the register shows it."""
    return value(v, kind)


def clamp(v: int, kind: str) -> int:
    low, high = limits(kind)
    return min(max(v, low), high)


def integers() -> list[Case]:
    cases = []
    for d in INT:
        for s in INT:
            cases += [
                Case(
                    f"cvt.{d}.{s} {{d}}, {{0}}",
                    holder(d),
                    (holder(s),),
                    lambda a, d=d, s=s: wrap(value(a, s), d),
                ),
                Case(
                    f"cvt.sat.{d}.{s} {{d}}, {{0}}",
                    holder(d),
                    (holder(s),),
                    lambda a, d=d, s=s: clamp(value(a, s), d),
                ),
            ]
    return cases


def int_to_float() -> list[Case]:
    return [
        Case(
            f"cvt.{mode}.{d}.{s} {{d}}, {{0}}",
            d,
            (holder(s),),
            lambda a, d=d, s=s, m=mode: round_exact(Fraction(value(a, s)), d, m),
        )
        for d in FLOAT
        for s in INT
        for mode in MODES
    ]


def nan_as(d: str, s: str) -> int:
    """What NaN becomes: https://docs.nvidia.com/cuda/parallel-thread-execution/#cvt."""
    if s != "f64" and d not in ("s64", "u64"):
        return 0
    return value(1 << width(d) - 1, d)


def to_integer(mode: str, d: str, s: str) -> Reference:
    def reference(raw: int) -> int:
        v = decode(raw, s)
        if math.isnan(v):
            return nan_as(d, s)
        return clamp(ROUND[mode](v), d) if math.isfinite(v) else limits(d)[int(v > 0)]

    return reference


def float_to_int() -> list[Case]:
    return [
        Case(f"cvt.{mode}{sat}.{d}.{s} {{d}}, {{0}}", holder(d), (s,), to_integer(mode, d, s))
        for d in INT
        for s in FLOAT
        for mode in ROUND
        for sat in ("", ".sat")
    ]


def between(d: str, s: str, mode: str) -> Reference:
    def reference(raw: int) -> int:
        v = decode(raw, s)
        if not math.isfinite(v):
            return NAN[d] if math.isnan(v) else encode(v, d)
        return round_exact(Fraction(v), d, mode, negative_zero=math.copysign(1, v) < 0)

    return reference


def saturated(d: str, s: str) -> Reference:
    def reference(raw: int) -> int:
        v = decode(raw, s)
        return encode(min(v, 1.0), d) if v > 0 else 0

    return reference


def floats() -> list[Case]:
    cases = [
        Case(f"cvt.{d}.{s} {{d}}, {{0}}", d, (s,), between(d, s, "rn"))
        for d, s in (
            ("f32", "f16"),
            ("f32", "bf16"),
            ("f64", "f16"),
            ("f64", "bf16"),
            ("f64", "f32"),
        )
    ]
    for d, s in (("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")):
        cases += [Case(f"cvt.{m}.{d}.{s} {{d}}, {{0}}", d, (s,), between(d, s, m)) for m in MODES]
    cases += [
        Case("cvt.sat.f32.f32 {d}, {0}", "f32", ("f32",), saturated("f32", "f32")),
        Case("cvt.sat.f64.f64 {d}, {0}", "f64", ("f64",), saturated("f64", "f64")),
        Case("cvt.rn.sat.f32.f64 {d}, {0}", "f32", ("f64",), saturated("f32", "f64")),
        Case(
            "cvt.rn.relu.f16.f32 {d}, {0}",
            "f16",
            ("f32",),
            lambda a: 0 if decode(a, "f32") <= 0 else between("f16", "f32", "rn")(a),
        ),
        Case(
            "cvt.ftz.f32.f32 {d}, {0}",
            "f32",
            ("f32",),
            lambda a: a & 0x80000000 if not a & 0x7F800000 else a,
        ),
        Case("cvt.f16.f16 {d}, {0}", "f16", ("f16",), lambda a: a),
    ]
    for kind in ("f16", "bf16", "f32", "f64"):
        for mode, function in ROUND.items():

            def integral(raw: int, k: str = kind, f: Reference = function) -> int:
                v = decode(raw, k)
                if not math.isfinite(v):
                    return raw
                return encode(math.copysign(float(f(v)), v), k)

            cases.append(Case(f"cvt.{mode}.{kind}.{kind} {{d}}, {{0}}", kind, (kind,), integral))
    return cases


def packed() -> list[Case]:
    cases = []
    for kind in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            one = between(kind, "f32", mode)
            cases.append(
                Case(
                    f"cvt.{mode}.{kind}x2.f32 {{d}}, {{0}}, {{1}}",
                    f"{kind}x2",
                    ("f32", "f32"),
                    lambda a, b, f=one: (f(a) & 0xFFFF) << 16 | f(b) & 0xFFFF,
                )
            )
    return cases


GREATEST = {"f16": 0x7BFF, "bf16": 0x7F7F}


def finite(kind: str, mode: str, relu: bool) -> Reference:
    """A conversion that never gives an infinity."""
    convert = between(kind, "f32", mode)

    def reference(raw: int) -> int:
        v = decode(raw, "f32")
        if relu and v <= 0:
            return 0
        if abs(v) > decode(GREATEST[kind], kind):
            return GREATEST[kind] | (0x8000 if v < 0 else 0)
        return convert(raw) & 0xFFFF

    return reference


def finites() -> list[Case]:
    cases = []
    for kind in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            for relu in ("", ".relu"):
                one = finite(kind, mode, bool(relu))
                tail = "{d}, {0}"
                cases += [
                    Case(f"cvt.{mode}{relu}.satfinite.{kind}.f32 {tail}", kind, ("f32",), one),
                    Case(f"cvt.{mode}{relu}.satfinite.{kind}x2.f32 {tail}, {{1}}", f"{kind}x2",
                         ("f32", "f32"), lambda a, b, f=one: f(a) << 16 | f(b)),
                ]  # fmt: skip
    return cases


def integer_packs() -> list[Case]:
    cases = []
    for kind in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"):
        n = int(kind[1:])

        def pack(a: int, b: int, c: int = 0, k: str = kind, n: int = n) -> int:
            high, low = (clamp(signed(v, 32), k) & (1 << n) - 1 for v in (a, b))
            return (c << 2 * n | high << n | low) & 0xFFFFFFFF

        tail, third = ("", "") if n == 16 else (".b32", ", {2}")
        sources = ("b32",) * (2 if n == 16 else 3)
        cases.append(
            Case(f"cvt.pack.sat.{kind}.s32{tail} {{d}}, {{0}}, {{1}}{third}", "b32", sources, pack)
        )
        if n < 16:
            cases.append(
                Case(f"cvt.pack.sat.{kind}.s32.b32 {{d}}, {{0}}, -3, 0", "b32", ("b32",),
                     lambda a, f=pack: f(a, 0xFFFFFFFD))
            )  # fmt: skip
    return cases


def wide_registers() -> list[Case]:
    """The source may be in a wider register, the destination is extended to its register."""
    return [
        Case("cvt.s32.s8 {d}, {0}", "s32", ("b32",), lambda a: value(a, "s8")),
        Case("cvt.u32.u16 {d}, {0}", "u32", ("b64",), lambda a: a & 0xFFFF),
        Case("cvt.s8.s32 {d}, {0}", "b32", ("b32",), lambda a: value(a, "s8")),
        Case("cvt.u8.u32 {d}, {0}", "b64", ("b32",), lambda a: a & 0xFF),
        Case("cvt.rzi.s8.f32 {d}, {0}", "b64", ("f32",), to_integer("rzi", "s8", "f32")),
    ]


CASES = [
    *integers(),
    *int_to_float(),
    *float_to_int(),
    *floats(),
    *packed(),
    *finites(),
    *integer_packs(),
    *wide_registers(),
]
assert width("bf16x2") == 32


def test_integer_to_integer() -> None:
    check(integers(), 31)


def test_integer_to_float() -> None:
    check(int_to_float(), 32)


def test_float_to_integer() -> None:
    check(float_to_int(), 33)


def test_nan_to_integer() -> None:
    """Zero, or the highest bit alone if the source is f64 or the destination has 64 bits."""
    assert {d: nan_as(d, "f32") & (1 << 64) - 1 for d in INT} == {
        "u8": 0, "s8": 0, "u16": 0, "s16": 0, "u32": 0, "s32": 0, "u64": 1 << 63, "s64": 1 << 63,
    }  # fmt: skip
    assert [nan_as(d, "f64") for d in ("u16", "u32", "s32")] == [1 << 15, 1 << 31, -(1 << 31)]


def test_float_to_float() -> None:
    check(floats(), 34)


def test_pairs() -> None:
    check(packed(), 35)


def test_finite_results() -> None:
    check(finites(), 37)


def test_packs_of_integers() -> None:
    check(integer_packs(), 38)


def test_registers_wider_than_the_type() -> None:
    check(wide_registers(), 36)


def test_ties_go_to_the_even_neighbour() -> None:
    """Random values hardly ever lie halfway between two."""
    halfway = {"bf16": 8, "f16": 11, "f32": 24}
    cases = []
    for d, s in (("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f32"), ("bf16", "f64")):
        for odd in (1, 3, 5, -1, -3, -5):
            exact = math.copysign(1 + abs(odd) * 2.0 ** -halfway[d], odd)
            raw = encode(exact, s)
            text = f"0f{raw:08X}" if s == "f32" else f"0d{raw:016X}"
            want = [round_exact(Fraction(exact), d, mode) for mode in MODES]
            cases += [
                Case(f"cvt.{mode}.{d}.{s} {{d}}, {text}", d, (), lambda w=bits: w)
                for mode, bits in zip(MODES, want, strict=True)
            ]
    check(cases)
