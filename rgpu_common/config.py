"""Configuration files in TOML, read through a checked schema.

A caller reads its keys with the typed methods of `Table` and then calls `done()`. A key that is
left over is an error, which names the key, the file and the most similar known key.
"""

from __future__ import annotations

import difflib
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rgpu_common.errors import ConfigError, UsageError
from rgpu_common.units import (
    MAX_BYTES,
    check_bare,
    parse_bytes,
    parse_share,
    parse_total_share,
    plain,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def read_toml(path: Path) -> Table:
    """Returns the root table of a file; ConfigError if it cannot be read or is not TOML."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: is not TOML: {error}") from None
    return Table(data, str(path), folder=path.absolute().parent)


class Table:
    """One table of a file. A method may read a key only once. A bad value raises ConfigError.

    folder: that of the file, from which relative paths in it lead.
    """

    def __init__(
        self, data: dict[str, Any], source: str, path: str = "", folder: Path | None = None
    ) -> None:
        self._data = dict(data)
        self._folder = folder
        self._source = source
        self._path = path
        self._known: list[str] = []

    def text(self, key: str, default: str) -> str:
        """Reads a string."""
        value = self._take(key, default)
        if isinstance(value, str):
            return value
        raise self._bad(key, value, "a string")

    def path(self, key: str, default: str, words: tuple[str, ...] = ()) -> str:
        """Reads the path of a file or a folder and returns it absolute. "" and `words` stay as they
        are.
        """
        there = key in self._data
        text = self.text(key, default)
        if not (there and text and self._folder is not None) or text in words:
            return text
        return str(self._folder / Path(text).expanduser())

    def texts(self, key: str, default: list[str]) -> list[str]:
        """Reads a list of strings."""
        value = self._take(key, default)
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return list(value)
        raise self._bad(key, value, "a list of strings")

    def flag(self, key: str, default: bool) -> bool:
        """Reads true or false."""
        value = self._take(key, default)
        if isinstance(value, bool):
            return value
        raise self._bad(key, value, "true or false")

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        """Reads a whole number from `low` to `high`."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise self._bad(key, value, f"a whole number from {low} to {high}")

    def optional_integer(self, key: str, low: int, high: int) -> int | None:
        """Like `integer`, but returns None if the key is absent."""
        if key in self._data:
            return self.integer(key, low, low, high)
        self._known.append(key)
        return None

    def seconds(self, key: str, default: float, low: float, high: float) -> float:
        """Reads a duration in seconds from `low` to `high`."""
        value = self._take(key, default)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and low <= value <= high:
            return float(value)
        raise self._bad(key, value, f"a number of seconds from {low:g} to {high:g}")

    def size(self, key: str, default: str | int, whole_bytes: int | None = None) -> int:
        """Reads a number of bytes, or text such as "2GiB"; with `whole_bytes` also "25%"."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        if not isinstance(value, str):
            raise self._bad(key, value, 'bytes, such as 1000 or "512MiB"')
        return self._quantity(key, lambda: parse_bytes(value, whole_bytes))

    def memory(self, key: str, default: str | int) -> int:
        """Like `size`, for the memory of a lease or a tenant: a bare number is not so small."""
        value, size = self._data.get(key, default), self.size(key, default)
        self._quantity(key, lambda: check_bare(str(value), size))
        return size

    def size_text(self, key: str, default: str) -> str:
        """Like `size`, but returns the text ("2GiB", "25%"), because the whole is not known yet."""
        value = self._take(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            self._quantity(key, lambda: check_bare(str(value), value))
            return str(value)
        if not isinstance(value, str):
            raise self._bad(key, value, 'bytes, such as "512MiB", or a part such as "25%"')
        self._quantity(key, lambda: check_bare(value, parse_bytes(value, MAX_BYTES)))
        return value

    def optional_memory(self, key: str) -> int | None:
        """Like `memory`, but returns None if the key is absent."""
        if key in self._data:
            return self.memory(key, 0)
        self._known.append(key)
        return None

    def share(self, key: str, default: float) -> int:
        """Reads a part of a device (0.4, "40%" or "40vcore") and returns it in millionths."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self._bad(key, value, 'a fraction such as 0.4, or "40%"')
        return self._quantity(key, lambda: parse_share(plain(value)))

    def optional_total_share(self, key: str) -> int | None:
        """Reads a number of devices (2.5, "250%" or "250vcore") and returns it in millionths.

        Returns None if the key is absent.
        """
        if key not in self._data:
            self._known.append(key)
            return None
        value = self._take(key, 0)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise self._bad(key, value, "a number of devices such as 2.5")
        return self._quantity(key, lambda: parse_total_share(plain(value)))

    def integers(self, key: str) -> list[int]:
        """Reads a list of whole numbers from 0 on. Returns an empty list if the key is absent."""
        value = self._take(key, [])
        good = isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)
        if good:
            return list(value)
        raise self._bad(key, value, "a list of whole numbers")

    def choice(self, key: str, default: str, choices: tuple[str, ...]) -> str:
        """Reads a string that must be one of `choices`."""
        value = self._take(key, default)
        if value in choices:
            return str(value)
        raise self._bad(key, value, "one of " + ", ".join(choices))

    def has(self, key: str) -> bool:
        """Returns whether the key exists."""
        self._known.append(key)
        return key in self._data

    def names_key(self, name: str) -> bool:
        """Returns whether `table.key` exists, without reading it."""
        table, _, key = name.rpartition(".")
        inner = self._data.get(table)
        return isinstance(inner, dict) and key in inner

    def is_table(self, key: str) -> bool:
        """Returns whether the key exists and its value is a table."""
        return isinstance(self._data.get(key), dict)

    def table(self, key: str) -> Table:
        """Reads a table. Returns an empty table if the key is absent."""
        value = self._take(key, {})
        if not isinstance(value, dict):
            raise self._bad(key, value, f"a table [{self._name(key)}]")
        return Table(value, self._source, self._name(key), self._folder)

    def rows(self, key: str) -> list[Table]:
        """Reads a list of tables [[key]]. Returns an empty list if the key is absent."""
        value = self._take(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self._bad(key, value, f"a list of tables [[{self._name(key)}]]")
        name = self._name(key)
        return [Table(item, self._source, name, self._folder) for item in value]

    def instant(self, key: str) -> float | None:
        """Reads a date with time and zone and returns seconds since 1970; None if it is absent."""
        value = self._take(key, None)
        if value is None:
            return None
        if isinstance(value, datetime) and value.tzinfo is not None:
            return value.timestamp()
        raise self._bad(key, value, "a time such as 2030-01-31T12:00:00Z")

    def names(self) -> list[str]:
        """Returns the keys that have not been read yet."""
        return list(self._data)

    def tables(self) -> Iterator[tuple[str, Table]]:
        """Reads every remaining key as a table."""
        for key in list(self._data):
            yield key, self.table(key)

    def refuse(self, key: str, reason: str) -> ConfigError:
        """Returns the error for a value that was read and is not acceptable."""
        return ConfigError(f"{self._source}: {self._name(key)}: {reason}")

    def done(self) -> None:
        """Raises ConfigError if a key has not been read, because it is then unknown."""
        for key in self._data:
            close = difflib.get_close_matches(key, self._known, 1)
            hint = (
                f"did you mean {close[0]!r}?" if close else f"known are {sorted(set(self._known))}"
            )
            raise ConfigError(f"{self._source}: unknown key {self._name(key)!r}; {hint}")

    def _take(self, key: str, default: object) -> Any:
        self._known.append(key)
        return self._data.pop(key, default)

    def _quantity(self, key: str, parse: Callable[[], T]) -> T:
        try:
            return parse()
        except UsageError as error:
            raise ConfigError(f"{self._source}: {self._name(key)}: {error}") from None

    def _bad(self, key: str, value: object, accepted: str) -> ConfigError:
        return ConfigError(
            f"{self._source}: {self._name(key)} is {value!r}, which is not {accepted}"
        )

    def _name(self, key: str) -> str:
        return f"{self._path}.{key}" if self._path else key
