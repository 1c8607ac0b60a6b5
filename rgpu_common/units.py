"""Quantities as users write them: memory in bytes, shares in millionths (ppm)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from rgpu_common.errors import UnitError

if TYPE_CHECKING:
    from decimal import Decimal

PPM = 1_000_000
MAX_BYTES = 1 << 62
# The largest accepted number of devices, above any sum over a server.
MAX_DEVICES = 100_000

# Only blanks count as white space, as in the shim (rgpu_client/shim/units.cc).
_NUMBER = re.compile(r" *([0-9]+(?:\.[0-9]+)?|\.[0-9]+) *([A-Za-z-]*|%) *", re.ASCII)
# One unit of GPUManager's vcuda-memory.
VMEM_BYTES = 256 << 20
# A bare number below this is hardly meant in bytes: no program runs in so little memory.
_LEAST_BARE_BYTES = 1_000_000
_FACTORS = {
    "": 1,
    "b": 1,
    "B": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    # Kubernetes writes Mi, and M for powers of 1000. Docker writes m for powers of 1024.
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "vmem": VMEM_BYTES,
    "vcuda-memory": VMEM_BYTES,
}
_WHOLE = ("", "b", "B", "vmem", "vcuda-memory")
_CORES = ("vcore", "vcuda-core")
_BINARY = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_ACCEPTED_BYTES = (
    "a number of bytes such as 512MiB, 2Gi, 2g (2 GiB), 1.5GB or 1000B, or 8vmem (units of 256 MiB)"
)
_ACCEPTED_PARTS = ", or a percentage such as 25%"
_ACCEPTED_SHARES = (
    "a fraction from 0 to 1, 0% to 100%, or 1vcore to 100vcore (hundredths of a device)"
)


class Memory(NamedTuple):
    """A memory size that a user asked for, in bytes or in millionths (ppm) of the device's memory,
    whose size is not known yet. Both 0: none was asked for.
    """

    bytes: int = 0
    ppm: int = 0

    def of(self, whole_bytes: int) -> int:
        """Returns the size in bytes on a device with `whole_bytes` of memory."""
        return self.bytes or self.ppm * whole_bytes // PPM


def parse_memory(text: str) -> Memory:
    """Returns the size that `text` means; a percentage stays one until the device is known.

    Raises:
        UnitError: with the text and what is accepted.
    """
    if text.rstrip().endswith("%"):
        return Memory(ppm=parse_bytes(text, PPM))
    size = _bytes(text, None, _ACCEPTED_BYTES + _ACCEPTED_PARTS)
    check_bare(text, size)
    return Memory(bytes=size)


def parse_memory_bytes(text: str) -> int:
    """Like `parse_memory`, where no percentage can be meant."""
    size = parse_bytes(text)
    check_bare(text, size)
    return size


def check_bare(text: str, size: int) -> None:
    """UnitError for a size of memory in so few bytes that another unit is meant."""
    if 0 < size < _LEAST_BARE_BYTES and text.strip(" ").isdigit():
        raise UnitError(
            f"{text!r} is {counted(size, 'byte')}, which no program can use: did you mean "
            f"{size}MiB? Bytes are written {size}B"
        )


def spell_bytes(count: int) -> str:
    """Returns a number of bytes as `parse_memory` reads it back."""
    return str(count) if count >= _LEAST_BARE_BYTES else f"{count}B"


def parse_bytes(text: str, whole_bytes: int | None = None) -> int:
    """Returns the bytes that `text` means; a percentage counts from `whole_bytes`, where that is
    known.

    Raises:
        UnitError: with the text and what is accepted.
    """
    return _bytes(text, whole_bytes, _ACCEPTED_BYTES + (_ACCEPTED_PARTS if whole_bytes else ""))


def _bytes(text: str, whole_bytes: int | None, accepted: str) -> int:
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not {accepted}")
    number, unit = _decimal(match[1]), match[2] if len(match[2]) == 1 else match[2].lower()
    if unit == "%":
        if not whole_bytes:
            raise UnitError(f"{text!r} is not {accepted}")
        if number > 100:
            raise UnitError(f"{text!r} is more than the whole: write at most 100%")
        return int(number * whole_bytes / 100)
    if unit not in _FACTORS:
        raise UnitError(f"{text!r} has the unit {match[2]!r}; write {accepted}")
    # Decimal's % fails for numbers with more digits than its precision.
    if number > MAX_BYTES:
        raise UnitError(_too_much(text))
    if unit in _WHOLE and number % 1:
        what = "units of 256 MiB" if unit.startswith("v") else "bytes"
        raise UnitError(f"{text!r} is not a whole number of {what}: write {accepted}")
    result = int(number * _FACTORS[unit])
    if result > MAX_BYTES:
        raise UnitError(_too_much(text))
    return result


def _decimal(text: str) -> Decimal:
    # Imported late, for programs that start without a size.
    from decimal import Decimal

    return Decimal(text)


def _too_much(text: str) -> str:
    return f"{text!r} is more than the {format_bytes(MAX_BYTES)} that can be said"


def parse_share(text: str) -> int:
    """Returns a part of a device in millionths, 0 to 1,000,000: a fraction (0.4), a percentage
    (40%) or GPUManager's vcuda-core (40vcore).

    Raises:
        UnitError: with the text and what is accepted.
    """
    match = _NUMBER.fullmatch(text)
    unit = match[2].lower() if match is not None else "?"
    if match is None or unit not in ("", "%", *_CORES):
        raise UnitError(f"{text!r} is not a share: write {_ACCEPTED_SHARES}")
    number = _decimal(match[1])
    if unit in _CORES:
        return _cores(text, number)
    ppm = number * (PPM // 100 if unit == "%" else PPM)
    if ppm > PPM:
        raise UnitError(f"{text!r} is not a share: write {_ACCEPTED_SHARES}")
    return int(ppm)


def parse_total_share(text: str) -> int:
    """Like `parse_share`, but for several devices: 2.5, 250%, 250vcore. May exceed 1."""
    match = _NUMBER.fullmatch(text)
    unit = match[2].lower() if match is not None else "?"
    if match is None or unit not in ("", "%", *_CORES) or _decimal(match[1]) > MAX_DEVICES * 100:
        raise UnitError(f"{text!r} is not a number of devices: write 2.5, 250% or 250vcore")
    return int(_decimal(match[1]) * (PPM if unit == "" else PPM // 100))


def plain(value: str | float) -> str:
    """Returns a number in decimal digits, never as 1e-05. Text is returned unchanged."""
    return value if isinstance(value, str) else format(_decimal(str(value)), "f")


def _cores(text: str, number: Decimal) -> int:
    """Converts GPUManager's vcuda-core: 1 to 100 is a part of one card, 200 is two whole cards."""
    if 1 <= number <= 100 and number % 1 == 0:
        return int(number) * (PPM // 100)
    if 100 < number <= 100 * MAX_DEVICES and number % 100 == 0:
        raise UnitError(
            f"{text!r} is {number / 100:g} whole devices, and a session has one: write at most "
            "100vcore and start one program for each device"
        )
    raise UnitError(
        f"{text!r} is not a share: vcuda-core counts hundredths of a device, so write a whole "
        "number from 1vcore to 100vcore"
    )


def format_bytes(count: int) -> str:
    """Returns `count` in the largest binary unit that keeps at most two decimals: 2 GiB, 1.50 MiB,
    100 B.
    """
    for name, factor in _BINARY:
        if count >= factor:
            whole, rest = divmod(count, factor)
            return f"{whole} {name}" if rest == 0 else f"{count / factor:.2f} {name}"
    return f"{count} B"


def counted(count: int, what: str) -> str:
    """Returns a number of things whose plural ends in s: 1 lease, 2 leases."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def format_share(ppm: int) -> str:
    """Returns a share in percent without trailing zeros: 40%, 12.5%."""
    return f"{ppm / (PPM // 100):.4f}".rstrip("0").rstrip(".") + "%"


def format_part(ppm: int) -> str:
    """Returns a measured part in percent, rounded as the page shows it: 90%, 2.5%."""
    percent = ppm / (PPM // 100)
    return f"{percent:.0f}%" if percent >= 10 or not ppm else f"{percent:.1f}%"


def format_seconds(seconds: float) -> str:
    """Returns a duration with a unit that suits its size."""
    for name, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds * 1e9:.0f} ns"


_TIMES = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_MOST_SECONDS = 10**9


def parse_duration(text: str) -> int:
    """Returns the whole seconds of "90s", "30min", "2h" or "1.5d"; UnitError."""
    found = _NUMBER.fullmatch(text)
    scale = _TIMES.get(found[2]) if found else None
    seconds = int(_decimal(found[1]) * scale) if found and scale else 0
    if not 1 <= seconds <= _MOST_SECONDS:
        raise UnitError(f"{text!r} is no time: write 90s, 30min, 2h or 1d")
    return seconds


def format_duration(seconds: float) -> str:
    """Returns a time in whole units, the two largest: "2 h", "1 h 30 min", "45 s"."""
    if not math.isfinite(seconds):
        return "?"
    left, words = int(max(seconds, 0)), []
    for name, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            words.append(f"{count} {name}")
    return " ".join(words[:2]) or "0 s"
