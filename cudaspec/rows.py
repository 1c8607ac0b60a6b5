"""The specification after reading: its parsed rows, and all of them as one object."""

from __future__ import annotations

import functools
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudaspec import model
from cudaspec.prototype import Prototype, type_names

if TYPE_CHECKING:
    from collections.abc import Mapping

# Kinds of fields with their size in bytes on the wire; 0: a u32 count and so many bytes.
SCALARS: Mapping[str, int] = {
    "u8": 1,
    "u16": 2,
    "u32": 4,
    "i32": 4,
    "u64": 8,
    "i64": 8,
    "f32": 4,
    "f64": 8,
    "address": 8,
    "bytes": 0,
}
HANDLES = frozenset(
    (
        "context",
        "stream",
        "event",
        "module",
        "library",
        "kernel",
        "function",
        "pool",
        "link",
        "image",
        "memory",
        "array",
        "mipmap",
        "graph",
        "exec",
    )
)


class SpecError(Exception):
    """The specification breaks a rule; the message is a sentence that names the row."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a request or reply. `new`: a handle that the client creates with this command."""

    kind: str
    name: str
    new: bool = False

    @property
    def size(self) -> int:
        """Bytes on the wire; 0 for `bytes`, which is a u32 count and so many bytes."""
        return SCALARS.get(self.kind, 8)

    @property
    def text(self) -> str:
        return f"{'new ' if self.new else ''}{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class CommandRow:
    """A checked command: its row, its parsed fields and its layout hash."""

    row: model.Command
    area: str
    request: tuple[Field, ...]
    reply: tuple[Field, ...]

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def opcode(self) -> int:
        return self.row.opcode

    @property
    def is_call(self) -> bool:
        """True if the client waits for a reply."""
        return self.row.mode in (model.Mode.CALL, model.Mode.PARKED)

    def offset(self, name: str) -> int | None:
        """Returns where a field of the request begins; None: behind one of variable length."""
        at = 0
        for part in self.request:
            if part.name == name:
                return at
            if part.size == 0:
                return None
            at += part.size
        raise KeyError(name)

    @property
    def canonical(self) -> str:
        """The text whose CRC-32 client and server compare."""
        request = ", ".join(f.text for f in self.request)
        reply = ", ".join(f.text for f in self.reply)
        bulk = self.row.bulk or "none"
        return f"{self.name} {self.row.mode.value} ({request}) -> ({reply}) bulk={bulk}"

    @property
    def layout_hash(self) -> int:
        return zlib.crc32(self.canonical.encode())


@dataclass(frozen=True, slots=True)
class CallRow:
    """A checked call: its row and its parsed prototype."""

    row: model.Call
    area: str
    prototype: Prototype

    @property
    def name(self) -> str:
        return self.prototype.name

    @property
    def implemented(self) -> bool:
        return self.row.mode not in (model.Mode.UNSUPPORTED, model.Mode.PLANNED)

    @property
    def makes_command(self) -> bool:
        """True if the call's command is made from its row."""
        return self.row.forward is not None and not self.row.forward.command

    @property
    def body(self) -> str:
        """The function that implements the call."""
        return self.row.alias or self.name


@dataclass(frozen=True)
class Spec:
    """The whole specification, read and checked."""

    calls: Mapping[str, CallRow]
    commands: Mapping[str, CommandRow]
    types: tuple[model.Type, ...] = ()
    errors: tuple[model.Error, ...] = ()
    constants: tuple[model.Constant, ...] = ()
    symbols: tuple[model.Symbols, ...] = ()
    emulated: frozenset[str] = frozenset()
    emulated_nullable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    driver: tuple[str, ...] = ()
    driver_optional: frozenset[str] = frozenset()
    extra_exports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    opcodes: Mapping[int, CommandRow] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "opcodes", {c.opcode: c for c in self.commands.values()})

    @functools.cached_property
    def areas(self) -> tuple[str, ...]:
        """The areas of the calls, in order."""
        return tuple(dict.fromkeys(c.area for c in self.calls.values()))

    @functools.cached_property
    def exported(self) -> tuple[str, ...]:
        """Every symbol that the shim and the emulated device export, sorted."""
        names = {s for row in self.symbols for s in (*(n for _, n in row.versions), *row.twins)}
        return tuple(sorted(names))

    @functools.cached_property
    def enumerators(self) -> Mapping[str, int]:
        """The names of all enumerators, with the number of their declarations."""
        return Counter(n for t in self.types if isinstance(t, model.Enum) for n in t.values)

    @functools.cached_property
    def named_numbers(self) -> frozenset[str]:
        """The names that a limit of a number may use: enumerators and constants."""
        return frozenset({*self.enumerators, *(c.name for c in self.constants)})

    @functools.cached_property
    def known_types(self) -> frozenset[str]:
        """Names of types that C code can use by value: all except Opaque."""
        names = {t.name for t in self.types if not isinstance(t, model.Opaque)}
        return frozenset(names | {"CUresult"})

    @functools.cached_property
    def declared(self) -> tuple[CallRow, ...]:
        """Calls whose types are all known, so that `cuda_abi.gen.h` can declare them."""
        return tuple(
            c
            for c in self.calls.values()
            if all(type_names(p.type) <= self.known_types for p in c.prototype.parameters)
        )
