"""Integer arithmetic and carry instructions against Python's integers."""

from __future__ import annotations

import itertools

from ptx.forms import INT, Case, Reference, bits, check, signed, typed, value


def divide(a: int, b: int) -> int:
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a - divide(a, b) * b if b else a


def clamp(v: int, kind: str = "s32") -> int:
    low, high = (
        (-(1 << bits(kind) - 1), (1 << bits(kind) - 1) - 1)
        if kind[0] == "s"
        else (0, (1 << bits(kind)) - 1)
    )
    return min(max(v, low), high)


def three(name: str, kind: str, compute: Reference, dst: str = "") -> Case:
    return Case(f"{name} {{d}}, {{0}}, {{1}}", dst or kind, (kind, kind), typed(kind, compute))


def arithmetic() -> list[Case]:
    cases = []
    for t in INT:
        n = bits(t)
        cases += [
            three(f"add.{t}", t, lambda a, b: a + b),
            three(f"sub.{t}", t, lambda a, b: a - b),
            three(f"mul.lo.{t}", t, lambda a, b: a * b),
            three(f"div.{t}", t, divide),
            three(f"rem.{t}", t, remainder),
            three(f"mul.hi.{t}", t, lambda a, b, n=n: a * b >> n),
            three(f"min.{t}", t, min),
            three(f"max.{t}", t, max),
            Case(
                f"sad.{t} {{d}}, {{0}}, {{1}}, {{2}}",
                t,
                (t, t, t),
                typed(t, lambda a, b, c: c + abs(a - b)),
            ),
        ]
        for mode in ("lo", "hi"):
            cases.append(
                Case(
                    f"mad.{mode}.{t} {{d}}, {{0}}, {{1}}, {{2}}",
                    t,
                    (t, t, t),
                    typed(t, lambda a, b, c, s=n if mode == "hi" else 0: (a * b >> s) + c),
                )
            )
        if n < 64:
            wide = f"{t[0]}{2 * n}"
            cases.append(three(f"mul.wide.{t}", t, lambda a, b: a * b, wide))
            cases.append(
                Case(
                    f"mad.wide.{t} {{d}}, {{0}}, {{1}}, {{2}}",
                    wide,
                    (t, t, wide),
                    lambda a, b, c, t=t, w=wide: value(a, t) * value(b, t) + value(c, w),
                )
            )
    cases.append(three("mul.s32", "s32", lambda a, b: a * b))
    cases += [
        three(f"{op}.sat.s32", "s32", f)
        for op, f in (("add", lambda a, b: clamp(a + b)), ("sub", lambda a, b: clamp(a - b)))
    ]
    cases.append(
        Case(
            "mad.hi.sat.s32 {d}, {0}, {1}, {2}",
            "s32",
            ("s32",) * 3,
            typed("s32", lambda a, b, c: clamp((a * b >> 32) + c)),
        )
    )
    for t in ("s16", "s32", "s64"):
        cases += [
            Case(f"abs.{t} {{d}}, {{0}}", t, (t,), typed(t, abs)),
            Case(f"neg.{t} {{d}}, {{0}}", t, (t,), typed(t, lambda a: -a)),
        ]
    return cases


def low24(v: int, kind: str) -> int:
    return signed(v & 0xFFFFFF, 24) if kind[0] == "s" else v & 0xFFFFFF


def small_products() -> list[Case]:
    cases = []
    for t in ("s32", "u32"):
        for mode, shift in (("lo", 0), ("hi", 16)):
            product = lambda a, b, t=t, s=shift: low24(a, t) * low24(b, t) >> s  # noqa: E731
            cases.append(Case(f"mul24.{mode}.{t} {{d}}, {{0}}, {{1}}", t, (t, t), product))
            cases.append(
                Case(
                    f"mad24.{mode}.{t} {{d}}, {{0}}, {{1}}, {{2}}",
                    t,
                    (t, t, t),
                    lambda a, b, c, p=product: p(a, b) + c,
                )
            )
    cases.append(
        Case(
            "mad24.hi.sat.s32 {d}, {0}, {1}, {2}",
            "s32",
            ("s32",) * 3,
            lambda a, b, c: clamp(
                signed((low24(a, "s") * low24(b, "s") >> 16) & 0xFFFFFFFF, 32) + signed(c, 32)
            ),
        )
    )
    for a, b in itertools.product("su", "su"):
        cases.append(
            Case(
                f"dp4a.{a}32.{b}32 {{d}}, {{0}}, {{1}}, {{2}}",
                "b32",
                ("b32",) * 3,
                lambda x, y, c, a=a, b=b: (
                    c + sum(field(x, 8, k, a) * field(y, 8, k, b) for k in range(4))
                ),
            )
        )
        for mode, start in (("lo", 0), ("hi", 2)):
            cases.append(
                Case(
                    f"dp2a.{mode}.{a}32.{b}32 {{d}}, {{0}}, {{1}}, {{2}}",
                    "b32",
                    ("b32",) * 3,
                    lambda x, y, c, a=a, b=b, s=start: (
                        c + sum(field(x, 16, k, a) * field(y, 8, k + s, b) for k in range(2))
                    ),
                )
            )
    return cases


def field(x: int, size: int, index: int, kind: str) -> int:
    raw = x >> size * index & (1 << size) - 1
    return signed(raw, size) if kind == "s" else raw


def pairs() -> list[Case]:
    cases = []
    for name, compute in (("add", lambda a, b: a + b), ("min", min), ("max", max)):
        for t in "su":

            def reference(a: int, b: int, f: Reference = compute, t: str = t) -> int:
                low, high = (f(field(a, 16, k, t), field(b, 16, k, t)) & 0xFFFF for k in (0, 1))
                return low | high << 16

            cases.append(
                Case(f"{name}.{t}16x2 {{d}}, {{0}}, {{1}}", "b32", ("b32", "b32"), reference)
            )
            if name != "add" and t == "s":

                def relu(a: int, b: int, f: Reference = compute) -> int:
                    low, high = (
                        max(f(field(a, 16, k, "s"), field(b, 16, k, "s")), 0) for k in (0, 1)
                    )
                    return low | high << 16

                cases.append(
                    Case(f"{name}.relu.s16x2 {{d}}, {{0}}, {{1}}", "b32", ("b32", "b32"), relu)
                )
                cases.append(
                    three(f"{name}.relu.s32", "s32", lambda a, b, f=compute: max(f(a, b), 0))
                )
    return cases


def carries() -> list[Case]:
    """Chains of two: the second instruction shows the carry of the first."""
    cases = []
    for t in ("u32", "s32", "u64", "s64"):
        n = bits(t)
        over = lambda a, b, n=n: a + b >> n  # noqa: E731
        cases += [
            Case(
                f"add.cc.{t} {{d}}, {{0}}, {{1}}; addc.{t} {{d}}, {{2}}, 0",
                t,
                (t,) * 3,
                lambda a, b, c, f=over: c + f(a, b),
            ),
            Case(
                f"add.cc.{t} {{d}}, {{0}}, {{1}}; addc.cc.{t} {{d}}, {{2}}, {{2}}; addc.{t} {{d}}, 0, 0",
                t,
                (t,) * 3,
                lambda a, b, c, n=n: c + c + (a + b >> n) >> n,
            ),
            Case(
                f"sub.cc.{t} {{d}}, {{0}}, {{1}}; subc.{t} {{d}}, {{2}}, 0",
                t,
                (t,) * 3,
                lambda a, b, c: c - int(a < b),
            ),
            Case(
                f"sub.cc.{t} {{d}}, {{0}}, {{1}}; subc.cc.{t} {{d}}, {{2}}, 0; subc.{t} {{d}}, 0, 0",
                t,
                (t,) * 3,
                lambda a, b, c: -int(c < int(a < b)),
            ),
            Case(
                f"mad.lo.cc.{t} {{d}}, {{0}}, {{1}}, {{2}}; addc.{t} {{d}}, 0, 0",
                t,
                (t,) * 3,
                lambda a, b, c, n=n: (a * b & (1 << n) - 1) + c >> n,
            ),
            Case(
                f"mad.hi.cc.{t} {{d}}, {{0}}, {{1}}, {{2}}; madc.hi.{t} {{d}}, {{0}}, {{1}}, 0",
                t,
                (t,) * 3,
                lambda a, b, c, n=n, t=t: _high(a, b, n, t) + (_high(a, b, n, t) + c >> n),
            ),
            Case(
                f"add.cc.{t} {{d}}, {{0}}, {{1}}; madc.lo.cc.{t} {{d}}, {{0}}, {{1}}, {{2}}",
                t,
                (t,) * 3,
                lambda a, b, c, n=n: a * b + c + (a + b >> n),
            ),
        ]
    return cases


def _high(a: int, b: int, n: int, kind: str) -> int:
    return value(a, kind) * value(b, kind) >> n & (1 << n) - 1


CASES = [*arithmetic(), *small_products(), *pairs(), *carries()]


def test_arithmetic() -> None:
    check(arithmetic())


def test_small_products() -> None:
    check(small_products(), 1)


def test_packed_pairs() -> None:
    check(pairs(), 2)


def test_carry_chains() -> None:
    check(carries(), 6)
