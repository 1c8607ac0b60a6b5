"""Text level: comments, positions, literals, and splitting at commas outside brackets.

PTX texts may be hostile. So every pattern takes time in proportion to the text that it reads, also
where it does not match. For that, no two neighbouring parts of a pattern may match the same
characters. The end of a comment, a string or a bracket may be missing.
"""

from __future__ import annotations

import math
import re
import struct
from typing import Final

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Imm

STRING: Final = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT: Final = re.compile(STRING + r"|//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_PART: Final = re.compile(r"(?:\{[^}]*\}?|\[[^\]]*\]?|\([^)]*\)?|[^,{\[(]+)*")
_MAX_DIGITS: Final = 19
_FORMATS: Final = {16: "<e", 32: "<f", 64: "<d"}
_INTEGER: Final = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_FLOAT_BITS: Final = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
NAME: Final = re.compile(r"[A-Za-z_$%][\w$]*")


def strip_comments(text: str) -> str:
    """Returns the text without comments. Lines keep their numbers, and strings their content."""
    if "//" not in text and "/*" not in text:
        return text

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        if found.startswith("/*") and (len(found) < 4 or not found.endswith("*/")):
            raise PtxError("a comment is not closed", line=line_of(text, match.start()))
        return found if found[0] == '"' else " " + "\n" * found.count("\n")

    return _COMMENT.sub(blank, text)


def line_of(text: str, pos: int) -> int:
    """Returns the line of an offset, from 1."""
    return text.count("\n", 0, pos) + 1


def split_commas(text: str) -> list[str]:
    """Returns the parts between top-level commas."""
    if "{" not in text and "(" not in text:
        return text.split(",")
    return split_outside_brackets(text)


def split_outside_brackets(text: str) -> list[str]:
    """Returns the parts between commas that are in no brackets of any kind."""
    parts, pos = [], 0
    while pos <= len(text):
        match = _PART.match(text, pos)
        assert match is not None
        parts.append(match.group())
        pos = match.end() + 1
    return parts


def whole(digits: str, what: str) -> int:
    """Returns the number of decimal digits.

    Raises:
        PtxError: there are too many digits. Python itself refuses to read 5,000 of them.
    """
    if len(digits) > _MAX_DIGITS:
        raise PtxError(f"the number in {what} is too large")
    return int(digits)


def pack(number: float, bits: int) -> bytes:
    """Returns the bytes of a number in the floating-point format of this size. A number that is too
    large becomes an infinity.
    """
    try:
        return struct.pack(_FORMATS[bits], number)
    except OverflowError:
        return struct.pack(_FORMATS[bits], math.copysign(math.inf, number))


def unpack(value: int, bits: int) -> float:
    """Returns the number with this bit pattern in the floating-point format of this size."""
    number: float = struct.unpack(_FORMATS[bits], value.to_bytes(bits // 8, "little"))[0]
    return number


def literal(text: str) -> Imm | None:
    """Returns the literal that the text is, or None if it is not a literal."""
    match = _INTEGER.fullmatch(text)
    if match:
        digits = match.group(2)
        base = {"x": 16, "X": 16, "b": 2, "B": 2}.get(
            digits[1:2], 8 if digits[0] == "0" and len(digits) > 1 else 10
        )
        try:
            value = int(digits[2:] if base in (16, 2) else digits, base)
        except ValueError:
            raise PtxError(f"'{text}' is not a number") from None
        value = -value if match.group(1) == "-" else value
        if not -(1 << 63) <= value < 1 << 64:
            raise PtxError(f"the number {text} does not fit into 64 bits")
        return Imm(value, 0)
    match = _FLOAT_BITS.fullmatch(text)
    if match:
        single, double = match.groups()
        return Imm(int(single, 16), 32) if single else Imm(int(double, 16), 64)
    if _DECIMAL.fullmatch(text):
        bits: int = struct.unpack("<Q", struct.pack("<d", float(text)))[0]
        return Imm(bits, 64)
    return None
