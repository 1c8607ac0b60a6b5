"""setp, set, selp and slct for all types, comparisons and combinations."""

from __future__ import annotations

import math
import operator

import numpy as np
from ptx.forms import Case, Reference, check, decode, signed
from ptx.program import run

ORDER: dict[str, Reference] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED: dict[str, Reference] = {
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
}
BOOL: dict[str, Reference] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def integer(cmp: str, kind: str) -> Reference:
    n = int(kind[1:])

    def reference(a: int, b: int) -> int:
        if kind[0] == "s" and cmp in ORDER:
            a, b = signed(a, n), signed(b, n)
        return int({**ORDER, **UNSIGNED}[cmp](a, b))

    return reference


def floating(cmp: str, kind: str) -> Reference:
    """Ordered comparisons are false with a NaN, the ones that end in u are true."""

    def reference(a: int, b: int) -> int:
        x, y = decode(a, kind), decode(b, kind)
        unordered = math.isnan(x) or math.isnan(y)
        if cmp in ("num", "nan"):
            return int(unordered == (cmp == "nan"))
        if unordered:
            return int(cmp.endswith("u"))
        return int(ORDER[cmp.removesuffix("u")](x, y))

    return reference


def comparisons() -> list[tuple[str, str, Reference]]:
    found = [(c, k, integer(c, k)) for k in ("s16", "s32", "s64") for c in ORDER]
    found += [(c, k, integer(c, k)) for k in ("u16", "u32", "u64") for c in (*ORDER, *UNSIGNED)]
    found += [(c, k, integer(c, k)) for k in ("b16", "b32", "b64") for c in ("eq", "ne")]
    floats = (*ORDER, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
    return found + [(c, k, floating(c, k)) for k in ("f16", "bf16", "f32", "f64") for c in floats]


def predicates() -> list[Case]:
    cases = [
        Case(f"setp.{c}.{k} {{d}}, {{0}}, {{1}}", "pred", (k, k), f) for c, k, f in comparisons()
    ]
    for op, combine in BOOL.items():
        for c, k, f in comparisons():
            if c in ("lt", "geu", "hs"):
                cases += [
                    Case(
                        f"setp.{c}.{op}.{k} {{d}}|{{p}}, {{0}}, {{1}}, {{2}}",
                        "pred",
                        (k, k, "pred"),
                        lambda a, b, p, f=f, g=combine: (g(f(a, b), p), g(1 - f(a, b), p)),
                    ),
                    Case(
                        f"setp.{c}.{op}.{k} {{d}}, {{0}}, {{1}}, !{{2}}",
                        "pred",
                        (k, k, "pred"),
                        lambda a, b, p, f=f, g=combine: g(f(a, b), 1 - p),
                    ),
                ]
    for kind in ("f16", "bf16"):
        one = floating("lt", kind)
        cases.append(
            Case(
                f"setp.lt.{kind}x2 {{d}}|{{p}}, {{0}}, {{1}}",
                "pred",
                (f"{kind}x2",) * 2,
                lambda a, b, f=one: (f(a & 0xFFFF, b & 0xFFFF), f(a >> 16, b >> 16)),
            )
        )
    return cases


TRUE = {
    "u32": 0xFFFFFFFF,
    "s32": 0xFFFFFFFF,
    "f32": 0x3F800000,
    "f16": 0x3C00,
    "bf16": 0x3F80,
    "u16": 0xFFFF,
    "s16": 0xFFFF,
}


def values() -> list[Case]:
    cases = []
    for c, k, f in comparisons():
        if c not in ("eq", "lt", "leu", "hi"):
            continue
        targets = ("f16", "u16", "u32", "s32") if k in ("f16", "bf16") else ("u32", "s32", "f32")
        for d in targets:
            cases.append(
                Case(
                    f"set.{c}.{d}.{k} {{d}}, {{0}}, {{1}}",
                    d,
                    (k, k),
                    lambda a, b, f=f, d=d: TRUE[d] * f(a, b),
                )
            )
        cases.append(
            Case(
                f"set.{c}.xor.u32.{k} {{d}}, {{0}}, {{1}}, {{2}}",
                "u32",
                (k, k, "pred"),
                lambda a, b, p, f=f: 0xFFFFFFFF * (f(a, b) ^ p),
            )
        )
    for kind, one in (("f16", 0x3C00), ("bf16", 0x3F80)):
        f = floating("gt", kind)
        cases.append(
            Case(
                f"set.gt.{kind}x2.{kind}x2 {{d}}, {{0}}, {{1}}",
                "b32",
                (f"{kind}x2",) * 2,
                lambda a, b, f=f, o=one: (
                    f(a & 0xFFFF, b & 0xFFFF) * o | f(a >> 16, b >> 16) * o << 16
                ),
            )
        )
        cases.append(
            Case(
                f"set.gt.and.{kind}x2.{kind}x2 {{d}}, {{0}}, {{1}}, {{2}}",
                "b32",
                (f"{kind}x2", f"{kind}x2", "pred"),
                lambda a, b, p, f=f, o=one: (
                    p * (f(a & 0xFFFF, b & 0xFFFF) * o | f(a >> 16, b >> 16) * o << 16)
                ),
            )
        )
    return cases


def flushed(cmp: str) -> Reference:
    """A comparison of halves with `.ftz`."""
    compare = floating(cmp, "f16")
    return lambda a, b: compare(*(v & 0x8000 if not v & 0x7C00 else v for v in (a, b)))


def pairs(compare: Reference, one: int) -> Reference:
    return lambda a, b: (
        compare(a & 0xFFFF, b & 0xFFFF) * one | compare(a >> 16, b >> 16) * one << 16
    )


def halves() -> list[Case]:
    """Comparisons to or from halves that `values` leaves out."""
    cases = []
    for c, k, f in comparisons():
        if c not in ("ne", "ge", "ltu", "ls") or k in ("f16", "bf16"):
            continue
        for d in ("f16", "bf16"):
            cases += [
                Case(f"set.{c}.{d}.{k} {{d}}, {{0}}, {{1}}", d, (k, k),
                     lambda a, b, f=f, d=d: TRUE[d] * f(a, b)),
                Case(f"set.{c}.or.{d}.{k} {{d}}, {{0}}, {{1}}, !{{2}}", d, (k, k, "pred"),
                     lambda a, b, p, f=f, d=d: TRUE[d] * (f(a, b) | 1 - p)),
            ]  # fmt: skip
    for c in ("eq", "gt", "leu", "num", "nan"):
        for kind in ("f16", "bf16"):
            two, one = (f"{kind}x2",) * 2, pairs(floating(c, kind), 0xFFFF)
            cases += [
                Case(f"set.{c}.{d}.{kind}x2 {{d}}, {{0}}, {{1}}", "b32", two, one)
                for d in ("u32", "s32")
            ]
            cases.append(
                Case(f"set.{c}.and.u32.{kind}x2 {{d}}, {{0}}, {{1}}, {{2}}", "b32", (*two, "pred"),
                     lambda a, b, p, f=one: p * f(a, b))
            )  # fmt: skip
            half = floating(c, kind)
            cases.append(
                Case(f"set.{c}.and.{kind}.{kind} {{d}}, {{0}}, {{1}}, {{2}}", kind, (kind, kind, "pred"),
                     lambda a, b, p, f=half, k=kind: TRUE[k] * (p & f(a, b)))
            )  # fmt: skip
            cases.append(
                Case(f"setp.{c}.or.{kind}x2 {{d}}|{{p}}, {{0}}, {{1}}, {{2}}", "pred", (*two, "pred"),
                     lambda a, b, p, f=half: (
                         f(a & 0xFFFF, b & 0xFFFF) | p, f(a >> 16, b >> 16) | p))
            )  # fmt: skip
    return cases


def flushes() -> list[Case]:
    """A subnormal half is a normal float, so it is flushed before it is compared."""
    cases = []
    for c in ("eq", "gt", "le", "ltu", "neu"):
        f, two = flushed(c), ("f16x2",) * 2
        cases += [
            Case(f"setp.{c}.ftz.f16 {{d}}, {{0}}, {{1}}", "pred", ("f16", "f16"), f),
            Case(f"set.{c}.ftz.u16.f16 {{d}}, {{0}}, {{1}}", "u16", ("f16", "f16"),
                 lambda a, b, f=f: 0xFFFF * f(a, b)),
            Case(f"set.{c}.ftz.f16.f16 {{d}}, {{0}}, {{1}}", "f16", ("f16", "f16"),
                 lambda a, b, f=f: 0x3C00 * f(a, b)),
            Case(f"set.{c}.ftz.f16x2.f16x2 {{d}}, {{0}}, {{1}}", "b32", two, pairs(f, 0x3C00)),
            Case(f"set.{c}.ftz.u32.f16x2 {{d}}, {{0}}, {{1}}", "b32", two, pairs(f, 0xFFFF)),
            Case(f"setp.{c}.ftz.f16x2 {{d}}|{{p}}, {{0}}, {{1}}", "pred", two,
                 lambda a, b, f=f: (f(a & 0xFFFF, b & 0xFFFF), f(a >> 16, b >> 16))),
        ]  # fmt: skip
    return cases


def selections() -> list[Case]:
    cases = []
    for k in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        cases += [
            Case(
                f"selp.{k} {{d}}, {{0}}, {{1}}, {{2}}",
                k,
                (k, k, "pred"),
                lambda a, b, p: a if p else b,
            ),
            Case(
                f"slct.{k}.s32 {{d}}, {{0}}, {{1}}, {{2}}",
                k,
                (k, k, "b32"),
                lambda a, b, c: a if c < 1 << 31 else b,
            ),
            Case(
                f"slct.{k}.f32 {{d}}, {{0}}, {{1}}, {{2}}",
                k,
                (k, k, "f32"),
                lambda a, b, c: a if decode(c, "f32") >= 0 else b,
            ),
            Case(
                f"slct.ftz.{k}.f32 {{d}}, {{0}}, {{1}}, {{2}}",
                k,
                (k, k, "f32"),
                lambda a, b, c: a if decode(c, "f32") >= 0 or not c & 0x7F800000 else b,
            ),
        ]
    return cases


CASES = [*predicates(), *values(), *halves(), *flushes(), *selections()]


def test_predicates() -> None:
    check(predicates(), 41)


def test_values() -> None:
    check(values(), 42)


def test_halves() -> None:
    check(halves(), 44)


def test_flushed_halves() -> None:
    check(flushes(), 45)


def test_subnormal_halves_are_equal_when_flushed() -> None:
    """Random inputs seldom pair subnormals only."""
    small = np.array([1, 0x8001, 0x3FF, 0x83FF, 0, 0x8000], np.uint16)
    body = """
    mul.wide.u32 %rd1, %tid, 2; add.u64 %rd2, %in, %rd1; ld.u16 %h1, [%rd2];
    mul.wide.u32 %rd3, %tid, 24; add.u64 %rd3, %out, %rd3; mov.u64 %rd4, %in; mov.u32 %r1, 0;
    next: ld.u16 %h2, [%rd4]; setp.eq.ftz.f16 %p1, %h1, %h2; setp.gt.ftz.f16 %p2, %h1, %h2;
    selp.u32 %r2, 1, 0, %p1; selp.u32 %r3, 2, 0, %p2; or.b32 %r2, %r2, %r3; st.u32 [%rd3], %r2;
    add.u64 %rd4, %rd4, 2; add.u64 %rd3, %rd3, 4; add.u32 %r1, %r1, 1;
    setp.lt.u32 %p3, %r1, 6; @%p3 bra next;
    """
    out = run(body, small, np.zeros((6, 6), np.uint32), threads=6)
    assert out.tolist() == [[1] * 6] * 6


def test_selections() -> None:
    check(selections(), 43)
