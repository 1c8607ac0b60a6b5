"""The keys of a configuration file, each declared once: as a field of a dataclass.

A field that is declared with `key` is one row of the table of keys: the key's name in the file, the
kind of its value with its bounds, its default, and what it means. `fill` is the checked reader of
such a class. The reference page and the command line's help are written from `keys_of`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from rgpu_common.config import Table

T = TypeVar("T")
_KEY, _PART = "key", "part"


class Kind(ABC, Generic[T]):
    """How the value of a key is written in the file, and which values are accepted."""

    @property
    @abstractmethod
    def accepted(self) -> str:
        """What is accepted, in Markdown, for the reference page."""

    @property
    def word(self) -> str:
        """What one value of a command-line option may be, in Markdown; "": any text."""
        return ""

    @abstractmethod
    def read(self, table: Table, name: str, default: T) -> T:
        """Reads the key `name`. ConfigError names the key, its value and what is accepted."""

    def skip(self, table: Table, name: str, default: T) -> None:
        """Reads the key of a value that the command line replaces: only its type is checked."""
        self.read(table, name, default)

    def said(self, option: Option, value: Any) -> T:
        """Returns the value of a command-line option. UsageError says what is accepted."""
        del option
        return cast("T", value)

    def written(self, value: T) -> str:
        """Returns the value as a file has it."""
        return toml(value)


@dataclass(frozen=True, slots=True)
class Option:
    """The command-line option that sets a key.

    metavar: name of its value; "": the option has none and sets the key to `value`. note: what only
    the option's help says.
    """

    flag: str
    metavar: str = ""
    value: bool = True
    repeated: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Key:
    """A row of the table.

    name: with its table, "leases.max". meaning: a sentence in Markdown. unset: how the default
    reads where the file's form of it would not say. inline: `metrics = VALUE` in place of the table
    `[metrics]` sets this key.
    """

    name: str
    kind: Kind[Any]
    default: Any
    meaning: str
    option: Option | None = None
    unset: str = ""
    inline: bool = False

    @property
    def table(self) -> str:
        """The name of the key's table; "" for the file's root."""
        return self.name.rpartition(".")[0]

    @property
    def described(self) -> str:
        """The meaning and the other ways to say it, in Markdown."""
        also = f" `{self.table} = VALUE` means the same." if self.inline else ""
        option = f" Option: `{self.option.flag}`." if self.option else ""
        return f"{self.meaning}{also}{option}"

    @property
    def default_text(self) -> str:
        """The default in Markdown."""
        return self.unset or f"`{self.kind.written(self.default)}`"


def key(
    name: str,
    kind: Kind[T],
    default: T,
    meaning: str,
    *,
    option: Option | None = None,
    unset: str = "",
    inline: bool = False,
) -> T:
    """Declares a field of a dataclass that is a key of the file (see `Key`)."""
    row = {_KEY: Key(name, kind, default, meaning, option, unset, inline)}
    if isinstance(default, dict):
        return field(default_factory=lambda: cast("T", dict(default)), metadata=row)
    return field(default=default, metadata=row)


def part(of: type[T]) -> T:
    """Declares a field whose value is another dataclass of keys."""
    return field(default_factory=of, metadata={_PART: of})


def keys_of(cls: type) -> Iterator[Key]:
    """Yields the rows of a class and of its parts, in the order of the fields."""
    for one in fields(cls):
        if _KEY in one.metadata:
            yield one.metadata[_KEY]
        elif _PART in one.metadata:
            yield from keys_of(one.metadata[_PART])


def fill(cls: type[T], root: Table, said: Mapping[str, Any] | None = None) -> T:
    """Reads every key of a class and of its parts.

    said: name of a key -> value of its command-line option, which wins over the file.

    Raises:
        UsageError: with the key or option, its value and what is accepted; or a key of the file is
            none of the class.
    """
    tables = _Tables(root)
    filled = _fill(cls, tables, said or {})
    tables.done()
    return filled


def toml(value: object) -> str:
    """Returns a value as a TOML file has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (list, tuple, frozenset)):
        return f"[{', '.join(map(toml, value))}]"
    raise TypeError(f"{value!r} has no form in TOML that is needed here")


class _Tables:
    """The tables of a file, each opened once."""

    def __init__(self, root: Table) -> None:
        self.root = root
        self._open: dict[str, Table] = {}

    def find(self, row: Key) -> tuple[Table, str]:
        """Returns the table of a key and its name in there."""
        name, _, leaf = row.name.rpartition(".")
        if not name:
            return self.root, leaf
        if row.inline and not self.root.is_table(name):
            return self.root, name
        if name not in self._open:
            self._open[name] = self.root.table(name)
        return self._open[name], leaf

    def done(self) -> None:
        """Raises ConfigError if a key is left over."""
        for table in (*self._open.values(), self.root):
            table.done()


def _fill(cls: type[T], tables: _Tables, said: Mapping[str, Any]) -> T:
    values: dict[str, Any] = {}
    for one in fields(cls):  # type: ignore[arg-type]
        if _PART in one.metadata:
            values[one.name] = _fill(one.metadata[_PART], tables, said)
        elif _KEY in one.metadata:
            values[one.name] = _value(one.metadata[_KEY], tables, said)
    return cls(**values)


def _value(row: Key, tables: _Tables, said: Mapping[str, Any]) -> Any:
    table, name = tables.find(row)
    if row.option is not None and said.get(row.name) is not None:
        row.kind.skip(table, name, row.default)
        return row.kind.said(row.option, said[row.name])
    return row.kind.read(table, name, row.default)
