"""Reads the rows of `nvml/` and checks them.

rows = cudaspec.load_nvml.load()
rows.functions["nvmlDeviceGetName"].prototype.parameters
rows.exported
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudaspec import load_messages
from cudaspec.nvml_model import Function, Needs, Refused
from cudaspec.prototype import Prototype, parse_prototype
from cudaspec.rows import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cudaspec import model

# Written by hand: it has no result that a row could describe.
BY_HAND = ("nvmlErrorString",)
# nvmlInternalGetExportTable is no part of NVML's public interface: it refuses, and says so. A
# server does not use a library that has rgpu_shim_version.
EXTRA = ("nvmlInternalGetExportTable", "rgpu_shim_version")
DEVICE = "nvmlDevice_t"
OF_DEVICE = (Needs.KNOWN, Needs.NOW)


@dataclass(frozen=True, slots=True)
class FunctionRow:
    """A function that answers, with its parsed declaration."""

    row: Function
    prototype: Prototype

    @property
    def name(self) -> str:
        return self.prototype.name

    @property
    def of_device(self) -> bool:
        """Whether its first parameter is a device that the export finds."""
        return self.row.needs in OF_DEVICE


@dataclass(frozen=True)
class NvmlRows:
    """The checked rows. errors: nvmlReturn_t."""

    functions: Mapping[str, FunctionRow]
    refused: Mapping[str, Refused]
    types: Sequence[model.Type]
    constants: Sequence[model.Constant]
    errors: Sequence[model.Error]

    @property
    def exported(self) -> list[str]:
        """All functions of NVML that the library exports, sorted."""
        return sorted((*self.functions, *self.refused, *BY_HAND))


@functools.lru_cache(maxsize=1)
def load() -> NvmlRows:
    """Returns the rows of the library.

    Raises:
        SpecError: a row breaks a rule.
    """
    from cudaspec.nvml import device, errors, processes, refused, system, types

    rows = (*system.FUNCTIONS, *device.FUNCTIONS, *processes.FUNCTIONS)
    return checked(rows, refused.REFUSED, types.TYPES, types.CONSTANTS, errors.ERRORS, _readings())


def _readings() -> frozenset[str]:
    return frozenset(load_messages.load().enumerations["ReadingKey"].values)


def checked(
    functions: Iterable[Function],
    refused: Iterable[Refused],
    types: Sequence[model.Type],
    constants: Sequence[model.Constant],
    errors: Sequence[model.Error],
    readings: frozenset[str],
) -> NvmlRows:
    """Returns these rows; SpecError if one breaks a rule."""
    try:
        parsed = [FunctionRow(row, parse_prototype(row.prototype)) for row in functions]
    except ValueError as error:
        raise SpecError(f"nvml: {error}") from None
    names = [one.name for one in parsed]
    without = {name: row for row in refused for name in row.names.split()}
    words = [name for row in refused for name in row.names.split()]
    for name, times in Counter((*names, *words, *BY_HAND)).items():
        if times > 1:
            raise SpecError(f"{name}: there are {times} rows of this function.")
    rows = NvmlRows({one.name: one for one in parsed}, without, types, constants, errors)
    known = {error.name for error in errors}
    for name, row in without.items():
        if row.error not in known:
            raise SpecError(f"{name}: there is no error {row.error}.")
    for one in parsed:
        _check(rows, one, readings)
    return rows


def _check(rows: NvmlRows, one: FunctionRow, readings: frozenset[str]) -> None:
    row, parameters = one.row, one.prototype.parameters
    if one.of_device != bool(parameters and parameters[0].type == DEVICE):
        raise SpecError(f"{one.name}: a function needs a device if it has one, and only then.")
    if row.body and (row.body not in rows.functions or rows.functions[row.body].row.body):
        raise SpecError(f"{one.name}: there is no body {row.body}.")
    if row.reading and (row.body or row.needs is not Needs.NOW or row.reading not in readings):
        raise SpecError(f"{one.name}: {row.reading} is no reading, or cannot be one here.")
    if row.reading and len(parameters) != 2:
        raise SpecError(f"{one.name}: a function with a reading has a device and one result.")
    pointers = {p.name for p in parameters if p.is_pointer}
    if set(row.nullable) - pointers:
        raise SpecError(f"{one.name}: {row.nullable} are not all pointers.")
