"""f16, bf16 and their pairs against exact rational arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from ptx.forms import Case, Reference, check, decode, encode, round_exact

NAN = {"f16": 0x7FFF, "bf16": 0x7FFF}


def flush(raw: int) -> int:
    return raw & 0x8000 if not raw & 0x7C00 else raw


def operate(op: str, kind: str, *raw: int) -> int:
    values = [decode(r, kind) for r in raw]
    if not all(map(math.isfinite, values)):
        if op == "fma":
            result = values[0] * values[1] + values[2]
        else:
            result = {
                "add": values[0] + values[1],
                "sub": values[0] - values[1],
                "mul": values[0] * values[1],
            }[op]
        return NAN[kind] if math.isnan(result) else encode(result, kind)
    f = [Fraction(v) for v in values]
    negative = math.copysign(1, values[0]) * math.copysign(1, values[1]) < 0
    if op == "mul":
        return round_exact(f[0] * f[1], kind, "rn", negative_zero=negative)
    if op == "fma":
        return round_exact(
            f[0] * f[1] + f[2],
            kind,
            "rn",
            negative_zero=negative and math.copysign(1, values[2]) < 0,
        )
    second = -f[1] if op == "sub" else f[1]
    both = math.copysign(1, values[0]) < 0 and (math.copysign(1, values[1]) < 0) != (op == "sub")
    return round_exact(f[0] + second, kind, "rn", negative_zero=both)


def saturate(raw: int, kind: str) -> int:
    value = decode(raw, kind)
    return encode(min(value, 1.0), kind) if value > 0 else 0


def relu(raw: int, kind: str) -> int:
    return 0 if decode(raw, kind) <= 0 else raw


def both(reference: Callable[..., int]) -> Reference:
    """A scalar reference applied to the halves of pairs."""

    def pair(*raw: int) -> int:
        low, high = (reference(*(r >> 16 * n & 0xFFFF for r in raw)) & 0xFFFF for n in (0, 1))
        return low | high << 16

    return pair


def forms(
    name: str, kinds: tuple[str, ...], count: int, make: Callable[[str], Callable[..., int]]
) -> list[Case]:
    """A form for each kind and for its pair."""
    operands = ", ".join(f"{{{n}}}" for n in range(count))
    cases = []
    for kind in kinds:
        cases.append(Case(f"{name}.{kind} {{d}}, {operands}", kind, (kind,) * count, make(kind)))
        pair = f"{kind}x2"
        cases.append(
            Case(f"{name}.{pair} {{d}}, {operands}", pair, (pair,) * count, both(make(kind)))
        )
    return cases


def minmax(op: str, nan: bool, kind: str, a: int, b: int) -> int:
    x, y = decode(a, kind), decode(b, kind)
    if math.isnan(x) or math.isnan(y):
        return NAN[kind] if nan or (math.isnan(x) and math.isnan(y)) else b if math.isnan(x) else a
    order = [(x, math.copysign(1, x), a), (y, math.copysign(1, y), b)]
    return (min if op == "min" else max)(order)[2]


def flush_both(kind: str, compute: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """`.ftz` around an operation; only f16 has it."""
    return (lambda a, b: flush(compute(flush(a), flush(b)))) if kind == "f16" else compute


def xorsign(op: str, nan: bool, kind: str, a: int, b: int) -> int:
    """The sign of the product, and the magnitude that the operation picks. NaN keeps no sign."""
    picked = minmax(op, nan, kind, a & 0x7FFF, b & 0x7FFF)
    return picked if math.isnan(decode(picked, kind)) else picked | (a ^ b) & 0x8000


def arithmetic() -> list[Case]:
    cases = []
    for op in ("add", "sub", "mul"):
        for spelled in (op, f"{op}.rn"):
            cases += forms(
                spelled, ("f16", "bf16"), 2, lambda k, o=op: lambda a, b: operate(o, k, a, b)
            )
        cases += forms(
            f"{op}.sat", ("f16",), 2, lambda k, o=op: lambda a, b: saturate(operate(o, k, a, b), k)
        )
        cases += forms(
            f"{op}.ftz",
            ("f16",),
            2,
            lambda k, o=op: lambda a, b: flush(operate(o, k, flush(a), flush(b))),
        )
    cases += forms(
        "fma.rn", ("f16", "bf16"), 3, lambda k: lambda a, b, c: operate("fma", k, a, b, c)
    )
    cases += forms(
        "fma.rn.relu",
        ("f16", "bf16"),
        3,
        lambda k: lambda a, b, c: relu(operate("fma", k, a, b, c), k),
    )
    cases += forms(
        "fma.rn.sat", ("f16",), 3, lambda k: lambda a, b, c: saturate(operate("fma", k, a, b, c), k)
    )
    return cases


def rest() -> list[Case]:
    cases = [
        *forms("neg", ("f16", "bf16"), 1, lambda _: lambda a: a ^ 0x8000),
        *forms("abs", ("f16", "bf16"), 1, lambda _: lambda a: a & 0x7FFF),
    ]
    for op in ("min", "max"):
        cases += forms(
            op, ("f16", "bf16"), 2, lambda k, o=op: lambda a, b: minmax(o, False, k, a, b)
        )
        cases += forms(
            f"{op}.NaN", ("f16", "bf16"), 2, lambda k, o=op: lambda a, b: minmax(o, True, k, a, b)
        )
        for nan in (False, True):
            name = f"{op}{'.NaN' if nan else ''}.xorsign.abs"
            cases += forms(
                name,
                ("f16", "bf16"),
                2,
                lambda k, o=op, n=nan: lambda a, b: xorsign(o, n, k, a, b),
            )
            cases += forms(
                name.replace(op, f"{op}.ftz"),
                ("f16",),
                2,
                lambda k, o=op, n=nan: flush_both(k, lambda a, b: xorsign(o, n, k, a, b)),
            )
    return cases


def approximate(function: Callable[[float], float], kind: str) -> Reference:
    def reference(raw: int) -> int | None:
        value = decode(raw, kind)
        if not math.isfinite(value) or abs(value) > 100:
            return None
        result = encode(function(value), kind)
        return None if not math.isfinite(decode(result, kind)) else result

    return reference


def approximations() -> list[Case]:
    cases = []
    for kind in ("f16", "bf16"):
        ex2 = "ex2.approx" if kind == "f16" else "ex2.approx.ftz"
        cases += [
            Case(
                f"{ex2}.{kind} {{d}}, {{0}}", kind, (kind,), approximate(lambda v: 2.0**v, kind), 2
            ),
            Case(
                f"tanh.approx.{kind} {{d}}, {{0}}", kind, (kind,), approximate(math.tanh, kind), 2
            ),
        ]
    return cases


CASES = [*arithmetic(), *rest(), *approximations()]


def test_arithmetic() -> None:
    check(arithmetic(), 21)


def test_signs_minimum_maximum() -> None:
    check(rest(), 22)


def test_approximations() -> None:
    check(approximations(), 23)
