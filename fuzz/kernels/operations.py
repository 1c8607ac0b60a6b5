"""The instructions that programs are drawn from: text, classes of their operands, and what they
compute on bits.

Classes of registers: h, r and q have 16, 32 and 64 bits, f and d are f32 and f64, p is a predicate.
An instruction of class `i` takes a small literal.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kernels import values as n

BITS: Final = {"h": 16, "r": 32, "q": 64, "f": 32, "d": 64, "p": 1}
CLASS: Final = {8: "h", 16: "h", 32: "r", 64: "q"}
INTEGERS: Final = ("s16", "u16", "s32", "u32", "s64", "u64")
Compute = Callable[..., int]


@dataclass(frozen=True)
class Operation:
    """`flag`: it reads the carry flag as its last argument, and gives (result, carry out)."""

    name: str
    target: str
    sources: str
    compute: Compute
    flag: bool = False


def width(kind: str) -> int:
    return int(kind.lstrip("sufb"))


def of(kind: str) -> str:
    """The class of registers for a type."""
    if kind in ("f32", "f64"):
        return "f" if kind == "f32" else "d"
    return CLASS[width(kind)]


def number(raw: int, kind: str) -> int:
    return n.signed(raw, width(kind)) if kind[0] == "s" else raw & n.mask(width(kind))


def typed(kind: str, compute: Compute) -> Compute:
    return lambda *raw: compute(*(number(v, kind) for v in raw))


def quotient(a: int, b: int) -> int:
    """Towards zero; by zero all ones (rgpu_emu/lower/arith.py: PTX leaves it open)."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def remainder(a: int, b: int) -> int:
    return a - quotient(a, b) * b if b else a


def _arithmetic() -> Iterator[Operation]:
    for t in INTEGERS:
        w, c = width(t), of(t)
        binary: dict[str, Compute] = {
            "add": operator.add,
            "sub": operator.sub,
            "mul.lo": operator.mul,
            "mul.hi": lambda a, b, w=w: a * b >> w,
            "div": quotient,
            "rem": remainder,
            "min": min,
            "max": max,
        }
        for name, compute in binary.items():
            yield Operation(f"{name}.{t}", c, c * 2, typed(t, compute))
        yield Operation(f"mad.lo.{t}", c, c * 3, typed(t, lambda a, b, d: a * b + d))
        yield Operation(f"mad.hi.{t}", c, c * 3, typed(t, lambda a, b, d, w=w: (a * b >> w) + d))
        yield Operation(f"sad.{t}", c, c * 3, typed(t, lambda a, b, d: d + abs(a - b)))
        if w < 64:
            wide = CLASS[2 * w]
            yield Operation(f"mul.wide.{t}", wide, c * 2, typed(t, operator.mul))
            yield Operation(
                f"mad.wide.{t}",
                wide,
                c * 2 + wide,
                lambda a, b, d, t=t: number(a, t) * number(b, t) + d,
            )
        if t[0] == "s":
            yield Operation(f"abs.{t}", c, c, typed(t, abs))
            yield Operation(f"neg.{t}", c, c, typed(t, operator.neg))
    for name, compute in (("add", operator.add), ("sub", operator.sub)):
        saturated = lambda a, b, f=compute: min(max(f(a, b), -(1 << 31)), (1 << 31) - 1)  # noqa: E731
        yield Operation(f"{name}.sat.s32", "r", "rr", typed("s32", saturated))


def _carry() -> Iterator[Operation]:
    for t in ("s32", "u32", "s64", "u64"):
        w, c = width(t), of(t)

        def plus(a: int, b: int, flag: int, w: int = w) -> int:
            return (a & n.mask(w)) + (b & n.mask(w)) + flag

        for cc in (".cc", ""):
            if cc:
                yield Operation(f"add.cc.{t}", c, c * 2, lambda a, b, _, f=plus: f(a, b, 0), True)
                yield Operation(f"sub.cc.{t}", c, c * 2, lambda a, b, _, f=plus: f(a, ~b, 1), True)
            yield Operation(f"addc{cc}.{t}", c, c * 2, plus, True)
            yield Operation(
                f"subc{cc}.{t}", c, c * 2, lambda a, b, flag, f=plus: f(a, ~b, flag), True
            )
            for half in ("lo", "hi"):

                def product(a: int, b: int, t: str = t, high: bool = half == "hi") -> int:
                    return number(a, t) * number(b, t) >> (width(t) if high else 0)

                if cc:
                    yield Operation(
                        f"mad.{half}.cc.{t}",
                        c,
                        c * 3,
                        lambda a, b, d, _, f=plus, g=product: f(g(a, b), d, 0),
                        True,
                    )
                yield Operation(
                    f"madc.{half}{cc}.{t}",
                    c,
                    c * 3,
                    lambda a, b, d, flag, f=plus, g=product: f(g(a, b), d, flag),
                    True,
                )


def _bits() -> Iterator[Operation]:
    for w, c in ((16, "h"), (32, "r"), (64, "q")):
        for name, compute in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
            yield Operation(f"{name}.b{w}", c, c * 2, compute)
        yield Operation(f"not.b{w}", c, c, operator.invert)
        yield Operation(f"cnot.b{w}", c, c, lambda a: int(a == 0))
        yield Operation(f"shl.b{w}", c, c + "r", lambda a, s, w=w: a << s if s < w else 0)
        yield Operation(f"shr.u{w}", c, c + "r", lambda a, s, w=w: a >> s if s < w else 0)
        yield Operation(f"shr.s{w}", c, c + "r", lambda a, s, w=w: n.signed(a, w) >> min(s, w - 1))
        if w == 16:
            continue
        yield Operation(f"popc.b{w}", "r", c, int.bit_count)
        yield Operation(f"clz.b{w}", "r", c, lambda a, w=w: w - a.bit_length())
        yield Operation(f"brev.b{w}", c, c, lambda a, w=w: int(f"{a:0{w}b}"[::-1], 2))
        yield Operation(f"bfi.b{w}", c, c * 2 + "rr", lambda *v, w=w: _insert(*v, w))
        for s in "us":
            yield Operation(
                f"bfe.{s}{w}", c, c + "rr", lambda *v, w=w, s=s: _extract(*v, w, s == "s")
            )
            yield Operation(f"bfind.{s}{w}", "r", c, lambda a, w=w, s=s: _find(a, w, s == "s"))
    yield Operation("lop3.b32", "r", "rrri", _lookup)
    yield Operation("prmt.b32", "r", "rrr", _permute)
    for side in "lr":
        for mode in ("clamp", "wrap"):
            yield Operation(
                f"shf.{side}.{mode}.b32", "r", "rrr", lambda *v, s=side, m=mode: _funnel(*v, s, m)
            )


def _insert(a: int, b: int, at: int, count: int, w: int) -> int:
    at, count = at & 0xFF, count & 0xFF
    field = n.mask(count) << at & n.mask(w)
    return b & ~field | a << at & field


def _extract(a: int, at: int, count: int, w: int, with_sign: bool) -> int:
    at, count = at & 0xFF, count & 0xFF
    if count == 0:
        return 0
    top = min(at + count - 1, w - 1)
    sign = a >> top & 1 if with_sign else 0
    full = a | (-sign << w)
    value = full >> at & n.mask(count)
    return value | (-sign << count)


def _find(a: int, w: int, with_sign: bool) -> int:
    if with_sign and a >> w - 1:
        a = ~a & n.mask(w)
    return a.bit_length() - 1


def _lookup(a: int, b: int, c: int, table: int) -> int:
    return sum(
        (table >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | c >> k & 1) & 1) << k for k in range(32)
    )


def _permute(a: int, b: int, selector: int) -> int:
    octets = [(a | b << 32) >> 8 * k & 0xFF for k in range(8)]
    out = 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        octet = octets[nibble & 7]
        if nibble & 8:
            octet = 0xFF if octet & 0x80 else 0
        out |= octet << 8 * k
    return out


def _funnel(a: int, b: int, count: int, side: str, mode: str) -> int:
    count = count & 31 if mode == "wrap" else min(count, 32)
    both = b << 32 | a
    return both << count >> 32 if side == "l" else both >> count


COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_COMBINE: Final[dict[str, Compute]] = {
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}


def _predicates() -> Iterator[Operation]:
    for name, compare in COMPARE.items():
        for t in INTEGERS:
            yield Operation(f"setp.{name}.{t}", "p", of(t) * 2, typed(t, compare))
            both = _COMBINE["and" if name in ("eq", "lt") else "xor" if name == "ge" else "or"]
            word = next(k for k, v in _COMBINE.items() if v is both)
            yield Operation(
                f"setp.{name}.{word}.{t}",
                "p",
                of(t) * 2 + "p",
                lambda a, b, p, t=t, f=compare, g=both: g(int(f(number(a, t), number(b, t))), p),
            )
        for t in ("f32", "f64"):
            for unordered in ("", "u"):
                yield Operation(
                    f"setp.{name}{unordered}.{t}",
                    "p",
                    of(t) * 2,
                    lambda a, b, t=t, f=compare, u=unordered: _compare(a, b, t, f, bool(u)),
                )
    for t in ("b16", "b32", "b64", "f32", "f64"):
        yield Operation(f"selp.{t}", of(t), of(t) * 2 + "p", lambda a, b, p: a if p else b)
    yield Operation("slct.u64.s32", "q", "qqr", lambda a, b, c: b if c >> 31 else a)
    for word, compute in _COMBINE.items():
        yield Operation(f"{word}.pred", "p", "pp", compute)
    yield Operation("not.pred", "p", "p", lambda a: 1 - a)


def _compare(
    a: int, b: int, kind: str, test: Callable[[float, float], bool], unordered: bool
) -> int:
    if n.is_nan(a, kind) or n.is_nan(b, kind):
        return int(unordered)
    return int(test(n.decode(a, kind), n.decode(b, kind)))


def _floats() -> Iterator[Operation]:
    for t in ("f32", "f64"):
        c = of(t)
        for mode in ("rn", "rz", "rm", "rp"):
            pairs: tuple[tuple[str, Compute], ...] = (
                ("add", n.add),
                ("mul", n.multiply),
                ("div", n.divide),
                ("sub", lambda a, b, t, m: n.add(a, n.negated(b, t), t, m)),
            )
            for name, compute in pairs:
                yield Operation(
                    f"{name}.{mode}.{t}",
                    c,
                    c * 2,
                    lambda a, b, f=compute, t=t, m=mode: f(a, b, t, m),
                )
            yield Operation(
                f"fma.{mode}.{t}", c, c * 3, lambda a, b, d, t=t, m=mode: n.fused(a, b, d, t, m)
            )
            yield Operation(f"sqrt.{mode}.{t}", c, c, lambda a, t=t, m=mode: n.square_root(a, t, m))
        yield Operation(f"min.{t}", c, c * 2, lambda a, b, t=t: n.smaller(a, b, t))
        yield Operation(f"max.{t}", c, c * 2, lambda a, b, t=t: n.smaller(a, b, t, larger=True))
        yield Operation(f"neg.{t}", c, c, lambda a, t=t: n.negated(a, t))
        yield Operation(f"abs.{t}", c, c, lambda a, t=t: a & n.mask(width(t) - 1))


def _conversions() -> Iterator[Operation]:
    kinds = [f"{s}{w}" for w in (16, 32, 64) for s in "us"]
    for to in kinds:
        for source in kinds:
            if to != source:
                yield Operation(
                    f"cvt.{to}.{source}", of(to), of(source), lambda a, s=source: number(a, s)
                )
                yield Operation(
                    f"cvt.sat.{to}.{source}",
                    of(to),
                    of(source),
                    lambda a, s=source, t=to: _saturated(number(a, s), t),
                )
    for f in ("f32", "f64"):
        for kind in kinds:
            for mode in ("rn", "rz", "rm", "rp"):
                yield Operation(
                    f"cvt.{mode}.{f}.{kind}",
                    of(f),
                    of(kind),
                    lambda a, f=f, k=kind, m=mode: n.rounded(n.Fraction(number(a, k)), f, m),
                )
            for mode in ("rni", "rzi", "rmi", "rpi"):
                yield Operation(
                    f"cvt.{mode}.{kind}.{f}",
                    of(kind),
                    of(f),
                    lambda a, f=f, k=kind, m=mode: n.to_integer(
                        a, f, width(k), with_sign=k[0] == "s", mode=m
                    ),
                )
    yield Operation("cvt.f64.f32", "d", "f", lambda a: n.encode(n.decode(a, "f32"), "f64"))
    for mode in ("rn", "rz", "rm", "rp"):
        yield Operation(f"cvt.{mode}.f32.f64", "f", "d", lambda a, m=mode: _narrow(a, m))


def _saturated(value: int, kind: str) -> int:
    w = width(kind)
    low, high = (-(1 << w - 1), (1 << w - 1) - 1) if kind[0] == "s" else (0, n.mask(w))
    return min(max(value, low), high)


def _narrow(a: int, mode: str) -> int:
    x = n.decode(a, "f64")
    if x != x or x in (float("inf"), -float("inf")):
        return n.encode(x, "f32")
    minus = bool(a >> 63)
    return n.rounded(n.Fraction(x), "f32", mode, negative_zero=minus)


GROUPS: Final[dict[str, list[Operation]]] = {
    "arithmetic": list(_arithmetic()),
    "carry": list(_carry()),
    "bits": list(_bits()),
    "predicates": list(_predicates()),
    "floats": list(_floats()),
    "conversions": list(_conversions()),
}
