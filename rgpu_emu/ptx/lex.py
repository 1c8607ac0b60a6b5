"""Text level: comments, positions, literals, splitting at commas outside brackets."""

from __future__ import annotations

import re
import struct
from typing import Final

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.operands import Imm

_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_PARTS: Final = re.compile(r"(?:\{[^}]*\}|\[[^\]]*\]|\([^)]*\)|[^,{\[(])+")
_INTEGER: Final = re.compile(r"([+-]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_FLOAT_BITS: Final = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})")
_DECIMAL: Final = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][+-]?\d+)?")
NAME: Final = re.compile(r"[A-Za-z_$%][\w$]*")


def strip_comments(text: str) -> str:
    """The text without comments; lines keep their numbers and strings their content."""
    if "//" not in text and "/*" not in text:
        return text

    def blank(match: re.Match[str]) -> str:
        found = match.group()
        return found if found[0] == '"' else " " + "\n" * found.count("\n")

    return _COMMENT.sub(blank, text)


def line_of(text: str, pos: int) -> int:
    """1-based line of an offset."""
    return text.count("\n", 0, pos) + 1


def split_commas(text: str) -> list[str]:
    """Parts between top-level commas."""
    if "{" not in text and "(" not in text:
        return text.split(",")
    return _PARTS.findall(text)


def literal(text: str) -> Imm | None:
    """The literal that the text is, or None."""
    match = _INTEGER.fullmatch(text)
    if match:
        digits = match.group(2)
        base = {"x": 16, "X": 16, "b": 2, "B": 2}.get(
            digits[1:2], 8 if digits[0] == "0" and len(digits) > 1 else 10
        )
        try:
            value = int(digits[2:] if base in (16, 2) else digits, base)
        except ValueError:
            raise PtxError(f"'{text}' is no number") from None
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
