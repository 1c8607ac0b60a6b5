"""Quantities as users write them: memory in bytes, shares in millionths (ppm)."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from rgpu_common.errors import UnitError

PPM = 1_000_000
MAX_BYTES = 1 << 62

_BYTES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*|%)\s*", re.ASCII)
_FACTORS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_BINARY = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_ACCEPTED_BYTES = "a number of bytes such as 1000, 512MiB, 2GiB or 1.5GB"


def parse_bytes(text: str, whole_bytes: int | None = None) -> int:
    """Returns the bytes that `text` means; a percentage counts from `whole_bytes`, where that is
    known.

    Raises:
        UnitError: with the text and what is accepted.
    """
    match = _BYTES.fullmatch(text)
    accepted = _ACCEPTED_BYTES + (", or a percentage such as 25%" if whole_bytes else "")
    if match is None:
        raise UnitError(f"{text!r} is not {accepted}")
    number, unit = Decimal(match[1]), match[2].lower()
    if unit == "%":
        if not whole_bytes or number > 100:
            raise UnitError(f"{text!r} is not {accepted}")
        return int(number * whole_bytes / 100)
    if unit in ("", "b") and number % 1:
        raise UnitError(f"{text!r} is not a whole number of bytes: write {accepted}")
    if unit not in _FACTORS:
        raise UnitError(f"{text!r} has the unit {match[2]!r}; write {accepted}")
    result = int(number * _FACTORS[unit])
    if result > MAX_BYTES:
        raise UnitError(f"{text!r} is more than the {format_bytes(MAX_BYTES)} that can be said")
    return result


def parse_share(text: str) -> int:
    """Returns a fraction (0.4) or percentage (40%) of a device in millionths, 0 to 1,000,000.

    Raises:
        UnitError: with the text and what is accepted.
    """
    stripped = text.strip()
    percent = stripped.endswith("%")
    try:
        number = Decimal(stripped.removesuffix("%").strip())
    except InvalidOperation:
        number = Decimal(-1)
    ppm = number * (PPM // 100 if percent else PPM)
    if not (number.is_finite() and 0 <= ppm <= PPM):
        raise UnitError(f"{text!r} is not a share: write a fraction from 0 to 1, or 0% to 100%")
    return int(ppm)


def format_bytes(count: int) -> str:
    """Returns `count` in the largest binary unit that keeps at most two decimals: 2 GiB, 1.50 MiB,
    100 B.
    """
    for name, factor in _BINARY:
        if count >= factor:
            whole, rest = divmod(count, factor)
            return f"{whole} {name}" if rest == 0 else f"{count / factor:.2f} {name}"
    return f"{count} B"


def format_share(ppm: int) -> str:
    """Returns a share in percent without trailing zeros: 40%, 12.5%."""
    return f"{ppm / (PPM // 100):.4f}".rstrip("0").rstrip(".") + "%"


def format_seconds(seconds: float) -> str:
    """Returns a duration with a unit that suits its size."""
    for name, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds * 1e9:.0f} ns"
