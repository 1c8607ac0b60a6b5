"""Constant expressions: `~0x2`, `(1 << 4) - 1`, evaluated as the PTX manual says.

https://docs.nvidia.com/cuda/parallel-thread-execution/#constant-expressions
Integers have 64 bits and are signed, unless a literal does not fit or ends with U; other operands
of an operator are then taken as unsigned.  Floating-point numbers are doubles.
"""

from __future__ import annotations

import operator
import re
import struct
from typing import TYPE_CHECKING, Final, Union

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.lex import literal, unpack
from rgpu_emu.ptx.operands import Imm

if TYPE_CHECKING:
    from collections.abc import Callable

# Bounds on the depth of what is read.
MAX_TEXT: Final = 300
MAX_NESTED: Final = 20
_LIMIT: Final = 1 << 64
_TOKEN: Final = re.compile(
    r"\s*(\(\s*\.[su]64\s*\)|WARP_SZ\b|0[fFdD][0-9a-fA-F]+|\d[\w.]*(?:(?<=[eE])[+-]\d+)?"
    r"|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%~!<>&^|?:()])"
)
# An unsigned integer is of a class of its own: Python's integers have no sign of their type.
Number = Union["Whole", float]


class Whole:
    """A 64-bit integer."""

    __slots__ = ("signed", "value")

    def __init__(self, value: int, *, signed: bool) -> None:
        value %= _LIMIT
        self.signed = signed
        self.value = value - _LIMIT if signed and value >= _LIMIT // 2 else value


_LEVELS: Final = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="),
    ("<<", ">>"), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_COMPARE: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_BITS: Final[dict[str, Callable[[int, int], int]]] = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
}  # fmt: skip
_SUMS: Final[dict[str, Callable[[int, int], int]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul,
}  # fmt: skip


def constant(text: str) -> Imm | None:
    """Returns the value of a constant expression, or None if the text is none.

    Raises:
        PtxError: the expression divides by zero, or an operator does not take its operands.
    """
    if len(text) > MAX_TEXT or text.count("(") + text.count("?") > MAX_NESTED:
        return None
    tokens = _tokens(text)
    if len(tokens) < 2:
        return None
    try:
        reader = _Reader(tokens)
        number = reader.choice()
    except _NotConstantError:
        return None
    if reader.tokens:
        return None
    if isinstance(number, float):
        return Imm(struct.unpack("<Q", struct.pack("<d", number))[0], 64)
    return Imm(number.value, 0)


class _NotConstantError(Exception):
    pass


def _tokens(text: str) -> list[str]:
    """Returns the tokens, last first; none if the text has anything else."""
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return []
        found.append(match.group(1))
        at = match.end()
    return found[::-1]


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    def choice(self) -> Number:
        first = self.level(0)
        if not self._takes("?"):
            return first
        yes = self.choice()
        if not self._takes(":"):
            raise _NotConstantError
        no = self.choice()
        return yes if _holds(first) else no

    def level(self, at: int) -> Number:
        if at == len(_LEVELS):
            return self.unary()
        number = self.level(at + 1)
        while self.tokens and self.tokens[-1] in _LEVELS[at]:
            number = _binary(self.tokens.pop(), number, self.level(at + 1))
        return number

    def unary(self) -> Number:
        if not self.tokens:
            raise _NotConstantError
        token = self.tokens.pop()
        if token in ("+", "-", "!", "~"):
            return _unary(token, self.unary())
        if token.startswith("(") and len(token) > 1:
            return Whole(_whole(self.unary(), token).value, signed="s" in token)
        if token == "(":
            number = self.choice()
            if not self._takes(")"):
                raise _NotConstantError
            return number
        return _number(token)

    def _takes(self, token: str) -> bool:
        if self.tokens and self.tokens[-1] == token:
            self.tokens.pop()
            return True
        return False


def _number(token: str) -> Number:
    if token == "WARP_SZ":
        return Whole(32, signed=True)
    found = literal(token)
    if found is None:
        raise _NotConstantError
    if found.float_bits:
        return unpack(found.value, found.float_bits)
    unsigned = token[-1:] == "U" or found.value >= _LIMIT // 2
    return Whole(found.value, signed=not unsigned)


def _unary(sign: str, number: Number) -> Number:
    if sign == "!":
        return Whole(int(not _holds(number)), signed=True)
    if sign == "~":
        return Whole(~_whole(number, sign).value, signed=False)
    if isinstance(number, float):
        return -number if sign == "-" else number
    return Whole(-number.value if sign == "-" else number.value, signed=number.signed)


def _binary(sign: str, a: Number, b: Number) -> Number:
    if sign in ("&&", "||"):
        both = _holds(a) and _holds(b) if sign == "&&" else _holds(a) or _holds(b)
        return Whole(int(both), signed=True)
    if isinstance(a, float) or isinstance(b, float):
        return _doubles(sign, a, b)
    if sign in ("<<", ">>"):
        by = min(b.value % _LIMIT, 64)
        return Whole(a.value << by if sign == "<<" else a.value >> by, signed=a.signed)
    if sign in _BITS:
        return Whole(_BITS[sign](a.value, b.value), signed=False)
    signed = a.signed and b.signed
    x, y = Whole(a.value, signed=signed).value, Whole(b.value, signed=signed).value
    if sign in _COMPARE:
        return Whole(int(_COMPARE[sign](x, y)), signed=True)
    if sign in _SUMS:
        return Whole(_SUMS[sign](x, y), signed=signed)
    if y == 0:
        raise PtxError("a constant expression divides by zero")
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)  # towards zero, as in C
    return Whole(quotient if sign == "/" else x - quotient * y, signed=signed)


def _doubles(sign: str, a: Number, b: Number) -> Number:
    x, y = (number if isinstance(number, float) else float(number.value) for number in (a, b))
    if sign in _COMPARE:
        return Whole(int(_COMPARE[sign](x, y)), signed=True)
    if sign == "/" and y == 0:
        raise PtxError("a constant expression divides by zero")
    results = {"+": x + y, "-": x - y, "*": x * y, "/": x / y if y else 0.0}
    if sign not in results:
        raise PtxError(f"'{sign}' of a constant expression takes integers")
    return results[sign]


def _whole(number: Number, sign: str) -> Whole:
    if isinstance(number, float):
        raise PtxError(f"'{sign}' of a constant expression takes integers")
    return number


def _holds(number: Number) -> bool:
    return (number if isinstance(number, float) else number.value) != 0
