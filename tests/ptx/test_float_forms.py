"""f32 and f64 arithmetic against exact rational arithmetic, every rounding mode."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

from ptx.forms import Case, Reference, check, decode, encode, round_exact, width

MODES = ("rn", "rz", "rm", "rp")
NAN = {"f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def flush(raw: int, kind: str) -> int:
    """Subnormals to zero of their sign (f32)."""
    return raw & 0x80000000 if kind == "f32" and not raw & 0x7F800000 else raw


def saturate(raw: int, kind: str) -> int:
    v = decode(raw, kind)
    if not v > 0:
        return 0
    return encode(min(v, 1.0), kind)


def exact(op: str, kind: str, mode: str, *raw: int) -> int:
    """Returns the result bits of one operation, computed exactly and rounded once."""
    values = [decode(r, kind) for r in raw]
    if (
        not all(map(math.isfinite, values))
        or (op in ("div", "rcp") and values[-1] == 0)
        or (op == "sqrt" and values[0] <= 0)
    ):
        return special(op, kind, values)
    f = [Fraction(v) for v in values]
    if op in ("add", "sub"):
        b = -f[1] if op == "sub" else f[1]
        signs = {
            math.copysign(1, values[0]),
            math.copysign(1, values[1]) * (-1 if op == "sub" else 1),
        }
        zero = signs == {-1.0} or (mode == "rm" and signs != {1.0})
        return round_exact(f[0] + b, kind, mode, negative_zero=zero)
    product_negative = math.prod(math.copysign(1, v) for v in values[:2]) < 0
    if op == "mul":
        return round_exact(f[0] * f[1], kind, mode, negative_zero=product_negative)
    if op == "fma":
        signs = {-1.0 if product_negative else 1.0, math.copysign(1, values[2])}
        zero = signs == {-1.0} or (mode == "rm" and signs != {1.0})
        return round_exact(f[0] * f[1] + f[2], kind, mode, negative_zero=zero)
    if op in ("div", "rcp"):
        top = f[0] if op == "div" else Fraction(1)
        return round_exact(top / f[-1], kind, mode, negative_zero=product_negative)
    return round_root(f[0], kind, mode)


def round_root(value: Fraction, kind: str, mode: str) -> int:
    """The square root: an integer root of a scaled value with a sticky part far below the last place."""
    shift = 2 * 1100
    scaled = value * (1 << 2 * shift)
    whole = math.isqrt(int(scaled))
    sticky = Fraction(0) if whole * whole == scaled else Fraction(1, 2)
    return round_exact((whole + sticky) / (1 << shift), kind, mode)


def special(op: str, kind: str, values: list[float]) -> int:
    """Infinities, NaN, division by zero, roots of negatives: no rounding is involved."""
    a = values[0]
    try:
        if op == "fma":
            product = a * values[1]
            result = (
                values[2]
                if math.isfinite(product) and not math.isfinite(values[2])
                else product + values[2]
            )
        else:
            result = {
                "add": lambda: a + values[1],
                "sub": lambda: a - values[1],
                "mul": lambda: a * values[1],
                "div": lambda: a / values[1],
                "rcp": lambda: 1.0 / a,
                "sqrt": lambda: math.sqrt(a),
            }[op]()
    except ZeroDivisionError:
        top = a if op == "div" else 1.0
        sign = math.copysign(1, top) * math.copysign(1, values[-1])
        result = math.nan if top == 0 or math.isnan(top) else math.copysign(math.inf, sign)
    except ValueError:
        result = math.nan
    return NAN[kind] if math.isnan(result) else encode(result, kind)


def model(op: str, kind: str, mode: str, *, ftz: bool = False, sat: bool = False) -> Reference:
    def reference(*raw: int) -> int:
        if ftz:
            raw = tuple(flush(r, kind) for r in raw)
        result = exact(op, kind, mode, *raw)
        result = saturate(result, kind) if sat else result
        return flush(result, kind) if ftz else result

    return reference


def operation(
    op: str, count: int, kind: str, *, modes: tuple[str, ...] = MODES, spelled: str = ""
) -> list[Case]:
    operands = ", ".join(f"{{{n}}}" for n in range(count))
    return [
        Case(
            f"{spelled or op}.{mode}.{kind} {{d}}, {operands}",
            kind,
            (kind,) * count,
            model(op, kind, mode),
        )
        for mode in modes
    ]


def arithmetic() -> list[Case]:
    cases = []
    for kind in ("f32", "f64"):
        for op, count in (
            ("add", 2),
            ("sub", 2),
            ("mul", 2),
            ("fma", 3),
            ("div", 2),
            ("rcp", 1),
            ("sqrt", 1),
        ):
            cases += operation(op, count, kind)
        cases += operation("fma", 3, kind, spelled="mad")
        for op in ("add", "sub", "mul"):
            cases.append(
                Case(f"{op}.{kind} {{d}}, {{0}}, {{1}}", kind, (kind, kind), model(op, kind, "rn"))
            )
    return cases


def modified() -> list[Case]:
    cases = []
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        operands = ", ".join(f"{{{n}}}" for n in range(count))
        for mode in MODES:
            cases += [
                Case(
                    f"{op}.{mode}.ftz.f32 {{d}}, {operands}",
                    "f32",
                    ("f32",) * count,
                    model(op, "f32", mode, ftz=True),
                ),
                Case(
                    f"{op}.{mode}.ftz.sat.f32 {{d}}, {operands}",
                    "f32",
                    ("f32",) * count,
                    model(op, "f32", mode, ftz=True, sat=True),
                ),
                Case(
                    f"{op}.{mode}.sat.f32 {{d}}, {operands}",
                    "f32",
                    ("f32",) * count,
                    model(op, "f32", mode, sat=True),
                ),
            ]
    cases.append(
        Case(
            "div.rn.ftz.f32 {d}, {0}, {1}",
            "f32",
            ("f32", "f32"),
            model("div", "f32", "rn", ftz=True),
        )
    )
    cases.append(
        Case("rcp.rn.ftz.f32 {d}, {0}", "f32", ("f32",), model("rcp", "f32", "rn", ftz=True))
    )
    cases.append(
        Case("sqrt.rn.ftz.f32 {d}, {0}", "f32", ("f32",), model("sqrt", "f32", "rn", ftz=True))
    )
    return cases


def pick(op: str, kind: str, nan: bool, a: int, b: int) -> int:
    """min and max: a NaN gives the other operand (or NaN with .NaN), and -0 is less than +0."""
    x, y = decode(a, kind), decode(b, kind)
    if math.isnan(x) or math.isnan(y):
        if nan or (math.isnan(x) and math.isnan(y)):
            return NAN[kind]
        return b if math.isnan(x) else a
    order = [(x, math.copysign(1, x), a), (y, math.copysign(1, y), b)]
    return (min if op == "min" else max)(order)[2]


def xorsign(op: str, a: int, b: int, nan: bool = False) -> int:
    picked = pick(op, "f32", nan, a & 0x7FFFFFFF, b & 0x7FFFFFFF)
    return picked if math.isnan(decode(picked, "f32")) else picked | (a ^ b) & 0x80000000


def sign_changes() -> list[Case]:
    cases = []
    for kind in ("f32", "f64"):
        top = 1 << width(kind) - 1
        cases += [
            Case(f"neg.{kind} {{d}}, {{0}}", kind, (kind,), lambda a, t=top: a ^ t),
            Case(f"abs.{kind} {{d}}, {{0}}", kind, (kind,), lambda a, t=top: a & ~t),
            Case(
                f"copysign.{kind} {{d}}, {{0}}, {{1}}",
                kind,
                (kind, kind),
                lambda a, b, t=top: a & t | b & ~t,
            ),
        ]
        for op in ("min", "max"):
            cases.append(
                Case(
                    f"{op}.{kind} {{d}}, {{0}}, {{1}}",
                    kind,
                    (kind, kind),
                    lambda a, b, o=op, k=kind: pick(o, k, False, a, b),
                )
            )
    for op in ("min", "max"):
        cases += [
            Case(
                f"{op}.NaN.f32 {{d}}, {{0}}, {{1}}",
                "f32",
                ("f32",) * 2,
                lambda a, b, o=op: pick(o, "f32", True, a, b),
            ),
            Case(
                f"{op}.ftz.f32 {{d}}, {{0}}, {{1}}",
                "f32",
                ("f32",) * 2,
                lambda a, b, o=op: flush(
                    pick(o, "f32", False, flush(a, "f32"), flush(b, "f32")), "f32"
                ),
            ),
            Case(
                f"{op}.xorsign.abs.f32 {{d}}, {{0}}, {{1}}",
                "f32",
                ("f32",) * 2,
                lambda a, b, o=op: xorsign(o, a, b),
            ),
            Case(
                f"{op}.ftz.NaN.xorsign.abs.f32 {{d}}, {{0}}, {{1}}",
                "f32",
                ("f32",) * 2,
                lambda a, b, o=op: flush(xorsign(o, flush(a, "f32"), flush(b, "f32"), True), "f32"),
            ),
        ]
    cases += [
        Case("neg.ftz.f32 {d}, {0}", "f32", ("f32",), lambda a: flush(a, "f32") ^ 0x80000000),
        Case("abs.ftz.f32 {d}, {0}", "f32", ("f32",), lambda a: flush(a, "f32") & 0x7FFFFFFF),
    ]
    return cases


def properties() -> list[Case]:
    cases = []
    for kind, least in (("f32", 2.0**-126), ("f64", 2.0**-1022)):
        for op, test in (
            ("finite", math.isfinite),
            ("infinite", math.isinf),
            ("number", lambda v: not math.isnan(v)),
            ("notanumber", math.isnan),
            ("normal", lambda v, t=least: math.isfinite(v) and (v == 0 or abs(v) >= t)),
            ("subnormal", lambda v, t=least: 0 < abs(v) < t),
        ):
            cases.append(
                Case(
                    f"testp.{op}.{kind} {{d}}, {{0}}",
                    "pred",
                    (kind,),
                    lambda a, f=test, k=kind: int(f(decode(a, k))),
                )
            )
    return cases


def near(
    compute: Reference, *, ftz: bool = False, low: float = 0.0, high: float = math.inf
) -> Reference:
    """A reference for an approximation: inputs outside the range are not checked."""

    def reference(*raw: int) -> int | None:
        values = [decode(flush(r, "f32") if ftz else r, "f32") for r in raw]
        if not all(math.isfinite(v) and (v == 0 or low <= abs(v) <= high) for v in values):
            return None
        try:
            result = encode(compute(*values), "f32")
        except (ValueError, ZeroDivisionError, OverflowError):
            return None
        return flush(result, "f32") if ftz else result

    return reference


def approximations() -> list[Case]:
    functions = [
        ("rcp", lambda v: 1 / v, 1, 0.0, math.inf),
        ("rsqrt", lambda v: 1 / math.sqrt(v), 2, 0.0, math.inf),
        ("sqrt", math.sqrt, 1, 0.0, math.inf),
        ("lg2", math.log2, 4, 0.0, math.inf),
        ("ex2", lambda v: 2.0**v, 4, 1e-30, 120.0),
        ("sin", math.sin, 16, 1e-4, 3.0),
        ("cos", math.cos, 256, 1e-4, 3.0),
    ]
    cases = []
    for name, compute, ulps, low, high in functions:
        for ftz in ("", ".ftz"):
            cases.append(
                Case(
                    f"{name}.approx{ftz}.f32 {{d}}, {{0}}",
                    "f32",
                    ("f32",),
                    near(compute, ftz=bool(ftz), low=low, high=high),
                    ulps,
                )
            )
    for name, compute in (
        ("sin", math.sin),
        ("cos", math.cos),
    ):  # absolute error, as the manual bounds it
        cases.append(
            Case(
                f"{name}.approx.f32 {{d}}, {{0}}; abs.f32 {{d}}, {{d}}; add.f32 {{d}}, {{d}}, 0f3F800000",
                "f32",
                ("f32",),
                near(lambda v, f=compute: abs(f(v)) + 1, low=1e-5, high=5e4),
                3,
            )
        )
    cases.append(Case("tanh.approx.f32 {d}, {0}", "f32", ("f32",), near(math.tanh), 64))
    for mode in ("approx", "full"):
        for ftz in ("", ".ftz"):
            cases.append(
                Case(
                    f"div.{mode}{ftz}.f32 {{d}}, {{0}}, {{1}}",
                    "f32",
                    ("f32", "f32"),
                    near(lambda a, b: a / b, ftz=bool(ftz), low=1e-15, high=1e15),
                    2,
                )
            )
    for text, compute in (
        ("rcp.approx.ftz.f64", lambda v: 1 / v),
        ("rsqrt.approx.f64", lambda v: 1 / math.sqrt(v)),
        ("rsqrt.approx.ftz.f64", lambda v: 1 / math.sqrt(v)),
    ):
        cases.append(Case(f"{text} {{d}}, {{0}}", "f64", ("f64",), double_near(compute), 4))
    return cases


def double_near(compute: Reference) -> Reference:
    def reference(raw: int) -> int | None:
        value = decode(raw, "f64")
        if not math.isfinite(value) or not 1e-300 < value < 1e300:
            return None
        return int(struct.unpack("<Q", struct.pack("<d", compute(value)))[0])

    return reference


CASES = [*arithmetic(), *modified(), *sign_changes(), *properties(), *approximations()]


def test_arithmetic_in_every_rounding_mode() -> None:
    check(arithmetic(), 11)


def test_flush_and_saturate() -> None:
    check(modified(), 12)


def test_signs_minimum_maximum() -> None:
    check(sign_changes(), 13)


def test_properties() -> None:
    check(properties(), 14)


def test_approximations() -> None:
    check(approximations(), 15)
