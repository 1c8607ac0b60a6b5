"""Numbers as bits: two's complement, and IEEE 754 computed exactly and rounded once."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from typing import Final

NAN: Final = {"f32": 0x7FC00000, "f64": 0x7FF8000000000000}
# bits, bits of the fraction with the leading one, exponent of the smallest and largest normal
_FORMAT: Final = {"f32": (32, 24, -126, 127), "f64": (64, 53, -1022, 1023)}


def mask(bits: int) -> int:
    return (1 << bits) - 1


def signed(value: int, bits: int) -> int:
    """The number that the low bits are in two's complement."""
    value &= mask(bits)
    return value - (1 << bits) if value >> bits - 1 else value


def decode(raw: int, kind: str) -> float:
    """The number of a bit pattern."""
    if kind == "f32":
        return float(struct.unpack("<f", struct.pack("<I", raw))[0])
    return float(struct.unpack("<d", struct.pack("<Q", raw))[0])


def encode(value: float, kind: str) -> int:
    """The bits of a number that the format holds."""
    if math.isnan(value):
        return NAN[kind]
    if kind == "f32":
        return int.from_bytes(struct.pack("<f", value), "little")
    return int.from_bytes(struct.pack("<d", value), "little")


def is_nan(raw: int, kind: str) -> bool:
    return math.isnan(decode(raw, kind))


def infinity(kind: str, *, negative: bool) -> int:
    return encode(-math.inf if negative else math.inf, kind)


def rounded(value: Fraction, kind: str, mode: str, *, negative_zero: bool = False) -> int:
    """The bits of an exact number, rounded by rn, rz, rm or rp."""
    width, precision, least, greatest = _FORMAT[kind]
    negative = value < 0 or (value == 0 and negative_zero)
    sign = int(negative) << width - 1
    size = abs(value)
    if size == 0:
        return sign
    exponent = max(_exponent(size), least)
    unit = Fraction(2) ** (exponent - precision + 1)
    whole, rest = divmod(size, unit)
    up = {
        "rn": 2 * rest > unit or (2 * rest == unit and whole % 2 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    whole += int(up)
    if whole * unit >= Fraction(2) ** (greatest + 1):
        to_infinity = mode == "rn" or mode == ("rm" if negative else "rp")
        return infinity(kind, negative=negative) - int(not to_infinity)
    return sign | ((exponent - least) << precision - 1) + int(whole)


def _exponent(size: Fraction) -> int:
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


def add(a: int, b: int, kind: str, mode: str = "rn") -> int:
    x, y = decode(a, kind), decode(b, kind)
    if not (math.isfinite(x) and math.isfinite(y)):
        return encode(x + y, kind)
    both_negative = math.copysign(1, x) < 0 and math.copysign(1, y) < 0
    if x == 0 and y == 0:
        opposite = math.copysign(1, x) != math.copysign(1, y)
        return encode(-0.0 if both_negative or (opposite and mode == "rm") else 0.0, kind)
    return rounded(Fraction(x) + Fraction(y), kind, mode, negative_zero=mode == "rm")


def negated(a: int, kind: str) -> int:
    return a ^ 1 << _FORMAT[kind][0] - 1


def multiply(a: int, b: int, kind: str, mode: str = "rn") -> int:
    x, y = decode(a, kind), decode(b, kind)
    if not (math.isfinite(x) and math.isfinite(y)):
        return encode(math.nan if 0 in (x, y) else x * y, kind)
    minus = math.copysign(1, x) != math.copysign(1, y)
    return rounded(Fraction(x) * Fraction(y), kind, mode, negative_zero=minus)


def divide(a: int, b: int, kind: str, mode: str = "rn") -> int:
    x, y = decode(a, kind), decode(b, kind)
    minus = math.copysign(1, x) != math.copysign(1, y)
    if math.isnan(x) or math.isnan(y) or (math.isinf(x) and math.isinf(y)) or x == y == 0:
        return NAN[kind]
    if math.isinf(x) or y == 0:
        return infinity(kind, negative=minus)
    if math.isinf(y):
        return encode(-0.0 if minus else 0.0, kind)
    return rounded(Fraction(x) / Fraction(y), kind, mode, negative_zero=minus)


def fused(a: int, b: int, c: int, kind: str, mode: str = "rn") -> int:
    """a * b + c, rounded once."""
    x, y, z = (decode(v, kind) for v in (a, b, c))
    if not all(map(math.isfinite, (x, y, z))):
        invalid = any(map(math.isnan, (x, y, z))) or (0 in (x, y) and math.inf in map(abs, (x, y)))
        if invalid:
            return NAN[kind]
        minus = math.copysign(1, x) * math.copysign(1, y)
        product = math.inf * minus if math.inf in (abs(x), abs(y)) else 0.0
        return encode(product + z, kind)
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    minus_product = math.copysign(1, x) != math.copysign(1, y)
    both = minus_product and math.copysign(1, z) < 0
    plain_zero = Fraction(x) * Fraction(y) == 0 and z == 0
    same = minus_product == (math.copysign(1, z) < 0)
    minus_zero = both if plain_zero and same else mode == "rm"
    return rounded(exact, kind, mode, negative_zero=minus_zero)


def square_root(a: int, kind: str, mode: str = "rn") -> int:
    x = decode(a, kind)
    if math.isnan(x) or x < 0:
        return NAN[kind]
    if x == 0 or math.isinf(x):
        return a
    exact = Fraction(x)
    # 2 * 64 bits more than the result has, and a last bit that says that the root is not exact.
    shift = 2 * (160 + max(0, exact.denominator.bit_length()))
    scaled = (exact.numerator << shift) // exact.denominator
    root = math.isqrt(scaled)
    inexact = root * root != scaled or (exact.numerator << shift) % exact.denominator != 0
    return rounded(Fraction(2 * root + int(inexact), 2 << shift // 2), kind, mode)


def smaller(a: int, b: int, kind: str, *, larger: bool = False) -> int:
    """min and max: a number rather than a NaN, and -0 below +0."""
    if is_nan(a, kind) or is_nan(b, kind):
        other = b if is_nan(a, kind) else a
        return NAN[kind] if is_nan(other, kind) else other
    first, second = sorted((a, b), key=lambda v: (decode(v, kind), not v >> _FORMAT[kind][0] - 1))
    return second if larger else first


def to_integer(a: int, kind: str, bits: int, *, with_sign: bool, mode: str) -> int:
    """cvt to an integer: out of range gives the nearest. NaN gives 0, or the highest bit alone if
    the source is f64 or the integer has 64 bits.
    """
    x = decode(a, kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if with_sign else (0, mask(bits))
    if math.isnan(x):
        return 1 << bits - 1 if kind == "f64" or bits == 64 else 0
    if math.isinf(x):
        return (high if x > 0 else low) & mask(bits)
    whole = {
        "rzi": math.trunc,
        "rmi": math.floor,
        "rpi": math.ceil,
        "rni": lambda v: round(Fraction(v)),
    }[mode](x)
    return min(max(whole, low), high) & mask(bits)
