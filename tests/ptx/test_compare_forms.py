"""setp, set, selp and slct for all types, comparisons and combinations."""

from __future__ import annotations

import math
import operator

from ptx.forms import Case, Reference, check, decode, signed

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


CASES = [*predicates(), *values(), *selections()]


def test_predicates() -> None:
    check(predicates(), 41)


def test_values() -> None:
    check(values(), 42)


def test_selections() -> None:
    check(selections(), 43)
