"""Reads every data module, checks it, and returns the specification as one object.

spec = cudaspec.load.load()
spec.commands["rgpuMemAlloc"].reply  # (Field(kind="address", name="dptr", new=False),)
spec.opcodes[0x0301].layout_hash
spec.calls["cuMemAlloc_v2"].prototype.parameters
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from typing import TYPE_CHECKING

import cudaspec
from cudaspec import check, forward, model
from cudaspec.prototype import parse_prototype
from cudaspec.rows import HANDLES, SCALARS, CallRow, CommandRow, Field, Spec, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import ModuleType


def modules(package: str) -> list[ModuleType]:
    """Returns the data modules of `cudaspec.PACKAGE`, by name."""
    found = importlib.import_module(f"{cudaspec.__name__}.{package}")
    names = sorted(m.name for m in pkgutil.iter_modules(found.__path__))
    return [importlib.import_module(f"{found.__name__}.{name}") for name in names]


def parse_field(command: str, text: str) -> Field:
    """Parses `"new event event"` or `"u64 bytes"` into a Field."""
    words = text.split()
    new = words[:1] == ["new"]
    if new:
        words = words[1:]
    if len(words) != 2 or not re.fullmatch(r"[a-z][a-z0-9_]*", words[1]):
        raise SpecError(f"{command}: the field '{text}' is not 'TYPE NAME' or 'new HANDLE NAME'.")
    kind, name = words
    if kind not in SCALARS and kind not in HANDLES:
        raise SpecError(f"{command}: the field '{text}' has the unknown type '{kind}'.")
    if new and kind not in HANDLES:
        raise SpecError(f"{command}: only a handle can be 'new', not '{kind}'.")
    return Field(kind, name, new)


def command_rows(areas: Mapping[str, Iterable[model.Command]]) -> dict[str, CommandRow]:
    """Parses commands by area; raises SpecError for a repeated name or opcode."""
    rows: dict[str, CommandRow] = {}
    opcodes: dict[int, str] = {}
    for area, commands in areas.items():
        for command in commands:
            name = command.name
            if name in rows:
                raise SpecError(f"{name}: there are two commands of this name.")
            if taken := opcodes.get(command.opcode):
                raise SpecError(f"{name}: the opcode 0x{command.opcode:04x} is taken by {taken}.")
            opcodes[command.opcode] = name
            request = tuple(parse_field(name, text) for text in command.request)
            reply = tuple(parse_field(name, text) for text in command.reply)
            rows[name] = CommandRow(command, area, request, reply)
    return dict(sorted(rows.items(), key=lambda item: item[1].opcode))


def call_rows(areas: Mapping[str, Iterable[model.Call]]) -> dict[str, CallRow]:
    """Parses calls by area; raises SpecError for a repeated symbol."""
    rows: dict[str, CallRow] = {}
    for area, calls in areas.items():
        for call in calls:
            try:
                prototype = parse_prototype(call.prototype)
            except ValueError as error:
                raise SpecError(f"calls/{area}: {error}") from None
            if prototype.name in rows:
                raise SpecError(f"{prototype.name}: there are two calls of this name.")
            rows[prototype.name] = CallRow(call, area, prototype)
    return rows


def _types() -> tuple[model.Type, ...]:
    """Returns all types, in an order in which C can declare them."""
    from cudaspec.types import graph_structs, handles, structs

    enums = [enum for module in modules("types") for enum in getattr(module, "ENUMS", ())]
    # Structures may use every other type, and callbacks may be fields of structures.
    return (
        *handles.TYPES,
        *enums,
        *handles.CALLBACKS,
        *structs.TYPES,
        *graph_structs.TYPES,
    )


def _symbols() -> tuple[model.Symbols, ...]:
    from cudaspec.types import symbols

    found = list(symbols.MANY)
    single = {"": symbols.ONE, "_ptsz": symbols.ONE_PTSZ, "_ptds": symbols.ONE_PTDS}
    for suffix, table in single.items():
        for version, names in table.items():
            for name in names.split():
                twins = (name + suffix,) if suffix else ()
                found.append(model.Symbols(name, ((version, name),), twins))
    return tuple(sorted(found, key=lambda s: s.name))


def read() -> Spec:
    """Reads the specification of this package without checking it."""
    from cudaspec.types import driver, emulated, errors, handles, symbols

    def by_area(package: str, attribute: str) -> dict[str, list[model.Call]]:
        return {m.__name__.rpartition(".")[2]: getattr(m, attribute) for m in modules(package)}

    types = _types()
    calls, made = forward.expand(call_rows(by_area("calls", "CALLS")), types)
    written = {m.__name__.rpartition(".")[2]: m.COMMANDS for m in modules("commands")}
    areas = {area: [*written.get(area, ()), *made.get(area, ())] for area in {**written, **made}}
    commands = command_rows(areas)
    forwarded = tuple(name for name, call in calls.items() if call.makes_command)
    shim = {name for name, call in calls.items() if call.implemented}
    return Spec(
        calls=calls,
        commands=commands,
        types=types,
        errors=tuple(errors.ERRORS),
        constants=tuple(handles.CONSTANTS),
        symbols=_symbols(),
        emulated=frozenset((shim | set(emulated.ALSO)) - set(emulated.NOT)),
        emulated_nullable=emulated.NULLABLE,
        driver=(*driver.FUNCTIONS, *forwarded),
        driver_optional=frozenset((*driver.OPTIONAL, *forwarded)),
        extra_exports=dict(symbols.EXTRA),
    )


@functools.lru_cache(maxsize=1)
def load() -> Spec:
    """Reads and checks the specification of this package; raises SpecError with a sentence."""
    spec = read()
    check.check_package(spec)
    return spec
