"""Integer constant expressions, which may stand where a literal may.

https://docs.nvidia.com/cuda/parallel-thread-execution/#constant-expressions
"""

from __future__ import annotations

import re
from typing import Final

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.lex import literal
from rgpu_emu.ptx.operands import Imm

_MAX_TOKENS: Final = 256
_TOKEN: Final = re.compile(
    r"\s*(\(\s*\.[su]64\s*\)|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%()<>!~&|^?:]|\w+)"
)
# The binary operators by precedence, the weakest first.
_LEVELS: Final = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_ALL_BITS: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


class _Number:
    """A 64-bit value, signed or unsigned."""

    __slots__ = ("bits", "unsigned")

    def __init__(self, value: int, *, unsigned: bool) -> None:
        self.bits = value & _ALL_BITS
        self.unsigned = unsigned

    @property
    def value(self) -> int:
        return self.bits if self.unsigned or self.bits < _SIGN else self.bits - (1 << 64)


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        pos = 0
        text = text.rstrip()
        while pos < len(text):
            match = _TOKEN.match(text, pos)
            if match is None or len(self.tokens) == _MAX_TOKENS:
                raise self.error()
            self.tokens.append("".join(match.group(1).split()))
            pos = match.end()
        self.at = 0

    def error(self) -> PtxError:
        return PtxError(f"'{self.text.strip()[:60]}' is not a constant expression")

    def take(self, *wanted: str) -> str:
        """Returns the next token if it is one of those, else ''."""
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return ""

    def need(self, token: str) -> None:
        if not self.take(token):
            raise self.error()

    def expression(self) -> _Number:
        found = self.binary(0)
        if not self.take("?"):
            return found
        yes = self.expression()
        self.need(":")
        no = self.expression()
        chosen = yes if found.bits else no
        return _Number(chosen.bits, unsigned=yes.unsigned or no.unsigned)

    def binary(self, level: int) -> _Number:
        if level == len(_LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while operator := self.take(*_LEVELS[level]):
            left = self.apply(operator, left, self.binary(level + 1))
        return left

    def unary(self) -> _Number:
        operator = self.take("+", "-", "~", "!", "(.s64)", "(.u64)", "(")
        if operator == "(":
            found = self.expression()
            self.need(")")
            return found
        if operator:
            one = self.unary()
            if operator == "!":
                return _Number(int(not one.bits), unsigned=False)
            value = {"-": -one.value, "~": ~one.value}.get(operator, one.value)
            unsigned = {"(.s64)": False, "(.u64)": True}.get(operator, one.unsigned)
            return _Number(value, unsigned=unsigned)
        if self.at == len(self.tokens):
            raise self.error()
        word = self.tokens[self.at]
        self.at += 1
        number = Imm(32, 0) if word == "WARP_SZ" else literal(word)
        if number is None or number.float_bits:
            raise self.error()
        return _Number(number.value, unsigned=word.endswith("U") or number.value >= _SIGN)

    def apply(self, operator: str, a: _Number, b: _Number) -> _Number:
        """Applies an operator as C does: if one side is unsigned, both are."""
        unsigned = a.unsigned or b.unsigned
        if operator in ("<<", ">>"):
            by = min(b.bits, 64)
            moved = a.value << by if operator == "<<" else a.value >> by
            return _Number(moved, unsigned=a.unsigned)
        x, y = (_Number(n.bits, unsigned=unsigned).value for n in (a, b))
        if operator in ("/", "%"):
            if y == 0:
                raise self.error()
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            return _Number(quotient if operator == "/" else x - quotient * y, unsigned=unsigned)
        numbers = {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y}
        if operator in numbers:
            return _Number(numbers[operator], unsigned=unsigned)
        truths = {
            "==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y,
            "&&": bool(x and y), "||": bool(x or y),
        }  # fmt: skip
        return _Number(int(truths[operator]), unsigned=False)


def constant(text: str) -> Imm | None:
    """Returns the value of a literal or an integer expression; None if the text is a name.

    Raises:
        PtxError: 218 for a text that is neither.
    """
    found = literal(text)
    if found is not None or not any(c in "+-*/%()<>!~&|^?:" for c in text):
        return found
    reader = _Reader(text)
    try:
        value = reader.expression().value
    except RecursionError:
        raise reader.error() from None
    if reader.at != len(reader.tokens):
        raise reader.error()
    return Imm(value, 0)
