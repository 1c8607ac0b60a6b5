"""The kinds of values that keys of a configuration file have (`keys.Kind`)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgpu_common.keys import Kind, T
from rgpu_common.units import MAX_BYTES, PPM, format_bytes, parse_bytes

if TYPE_CHECKING:
    from rgpu_common.config import Table
    from rgpu_common.keys import Option

_UNITS = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


class Flag(Kind[bool]):
    """true or false."""

    accepted = "`true` or `false`"

    def read(self, table: Table, name: str, default: bool) -> bool:
        return table.flag(name, default)


class Text(Kind[str]):
    """Any text."""

    accepted = "text"

    def read(self, table: Table, name: str, default: str) -> str:
        return table.text(name, default)


class File(Text):
    """The path of a file. A relative one leads from the folder of the configuration file; that of
    an option from the working folder.
    """

    accepted = "path of a file"

    def read(self, table: Table, name: str, default: str) -> str:
        return table.path(name, default)

    def said(self, option: Option, value: Any) -> str:
        del option
        return str(Path(value).expanduser().absolute()) if value else ""


class Folder(File):
    """The path of a folder, as that of a file."""

    accepted = "path of a folder"


class Texts(Kind["tuple[str, ...]"]):
    """A list of texts."""

    accepted = "list of names"

    def read(self, table: Table, name: str, default: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(table.texts(name, list(default)))


@dataclass(frozen=True)
class Integer(Kind[int]):
    """A whole number from `low` to `high`."""

    low: int
    high: int

    @property
    def accepted(self) -> str:
        return f"{self.low} to {self.high}"

    def read(self, table: Table, name: str, default: int) -> int:
        return table.integer(name, default, self.low, self.high)


@dataclass(frozen=True)
class MaybeInteger(Kind["int | None"]):
    """A whole number from `low` to `high`; None if the key is absent."""

    low: int
    high: int

    @property
    def accepted(self) -> str:
        return Integer(self.low, self.high).accepted

    def read(self, table: Table, name: str, default: int | None) -> int | None:
        del default
        return table.optional_integer(name, self.low, self.high)


@dataclass(frozen=True)
class Seconds(Kind[float]):
    """A duration in seconds."""

    low: float
    high: float

    @property
    def accepted(self) -> str:
        return f"{self.low:g} to {self.high:g} seconds"

    def read(self, table: Table, name: str, default: float) -> float:
        return table.seconds(name, default, self.low, self.high)


@dataclass(frozen=True)
class MaybeSeconds(Kind["float | None"]):
    """A duration in seconds; None if the key is absent."""

    low: float
    high: float

    @property
    def accepted(self) -> str:
        return Seconds(self.low, self.high).accepted

    def read(self, table: Table, name: str, default: float | None) -> float | None:
        return table.seconds(name, 0.0, self.low, self.high) if table.has(name) else default


@dataclass(frozen=True)
class Size(Kind[int]):
    """Bytes from `low` to `high`. remedy: what the error says of a size outside these bounds."""

    low: int = 0
    high: int | None = None
    remedy: str = ""

    @property
    def accepted(self) -> str:
        if self.high is not None:
            return f"bytes, {format_bytes(self.low)} to {format_bytes(self.high)}"
        return f"bytes, at least {format_bytes(self.low)}" if self.low else "bytes"

    def read(self, table: Table, name: str, default: int) -> int:
        value = table.size(name, default)
        if value < self.low or (self.high is not None and value > self.high):
            raise table.refuse(name, self.remedy)
        return value

    def written(self, value: int) -> str:
        for unit, factor in _UNITS:
            if value and value % factor == 0:
                return f'"{value // factor}{unit}"'
        return str(value)


class MaybeMemory(Kind["int | None"]):
    """Bytes of memory; None if the key is absent."""

    accepted = "bytes"

    def read(self, table: Table, name: str, default: int | None) -> int | None:
        del default
        return table.optional_memory(name)


class SizeOrPart(Kind[str]):
    """Bytes, or a part of a whole that is not known yet, as text. Nothing is refused."""

    accepted = 'bytes, or a part of its device such as `"25%"`'

    def read(self, table: Table, name: str, default: str) -> str:
        text = table.size_text(name, default)
        if parse_bytes(text, MAX_BYTES) == 0:
            raise table.refuse(name, f"{text!r} is nothing: a lease needs some memory")
        return text


class Share(Kind[int]):
    """A part of a device, in millionths."""

    accepted = '0 to 1, or `"40%"`'

    def read(self, table: Table, name: str, default: int) -> int:
        return table.share(name, default / PPM)

    def written(self, value: int) -> str:
        return f"{value / PPM:g}"


class MaybeDevices(Kind["int | None"]):
    """A number of devices in millionths, such as 2.5; None if the key is absent."""

    accepted = 'devices, such as `2.5` or `"250%"`'

    def read(self, table: Table, name: str, default: int | None) -> int | None:
        del default
        return table.optional_total_share(name)


@dataclass(frozen=True)
class Choice(Kind[T]):
    """One of several words. meanings: word -> the value that it stands for."""

    meanings: dict[str, T]

    @property
    def accepted(self) -> str:
        *most, last = (f'`"{word}"`' for word in self.meanings)
        return f"{', '.join(most)} or {last}"

    def read(self, table: Table, name: str, default: T) -> T:
        return self.meanings[table.choice(name, self._word(default), tuple(self.meanings))]

    def written(self, value: T) -> str:
        return f'"{self._word(value)}"'

    def _word(self, value: T) -> str:
        return next(word for word, meant in self.meanings.items() if meant == value)
