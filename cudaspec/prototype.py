"""Parses the C declarations that rows contain verbatim."""

from __future__ import annotations

import re
from dataclasses import dataclass

_PROTOTYPE = re.compile(r"(CUresult|nvmlReturn_t) ((?:cu|nvml)\w+)\((.*)\)", re.DOTALL)
_PARAMETER = re.compile(r"(.*?)(\w+)(\[\d*\])?", re.DOTALL)
_FIELD_NAME = re.compile(r"(\w+)\s*(?:\[[^\]]*\])?$")
_WORDS = frozenset(
    (
        *("const", "unsigned", "signed", "char", "short", "int", "long", "float", "double", "void"),
        *("size_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "int32_t", "int64_t"),
        *("struct", "union", "sizeof"),
    )
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `type`: as written, without the name; arrays have become pointers."""

    type: str
    name: str

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")

    @property
    def pointee(self) -> str:
        """The type that a pointer points to, without const; empty for a value."""
        return self.type[:-1].replace("const ", "").strip() if self.is_pointer else ""

    @property
    def declaration(self) -> str:
        return self.type + ("" if self.is_pointer else " ") + self.name


@dataclass(frozen=True, slots=True)
class Prototype:
    """A function of the driver API or of NVML: its exported symbol and its parameters."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: str = "CUresult"

    @property
    def declaration(self) -> str:
        return f"{self.returns} {self.name}({self.parameter_list})"

    @property
    def parameter_list(self) -> str:
        return ", ".join(p.declaration for p in self.parameters) or "void"

    @property
    def names(self) -> str:
        return ", ".join(p.name for p in self.parameters)


def parse_prototype(text: str) -> Prototype:
    """Parses a declaration; raises ValueError with a sentence if it is not one of the driver
    API.
    """
    match = _PROTOTYPE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"'{text}' is not a declaration 'CUresult cuNAME(...)'.")
    returns, name, inside = match.groups()
    parts = [part.strip() for part in inside.split(",")]
    if parts == ["void"]:
        parts = []
    return Prototype(name, tuple(_parameter(name, part) for part in parts), returns)


def _parameter(function: str, text: str) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if not match or not match.group(1).strip():
        raise ValueError(f"{function}: the parameter '{text}' has no type or no name.")
    kind, name, array = match.groups()
    kind = " ".join(kind.replace("*", " * ").split())
    kind = kind.replace("* *", "**").replace(" * const *", " *const *")
    if array:
        kind += "*" if kind.endswith("*") else " *"
    return Parameter(kind, name)


def type_names(text: str) -> set[str]:
    """Returns the names of types in a C declaration: `const CUuuid *` -> {CUuuid}."""
    return {word for word in re.findall(r"[A-Za-z_]\w*", text) if word not in _WORDS}


def field_name(declaration: str) -> str:
    """Returns the name that `int maxGridSize[3]` or `union { ... } param` declares."""
    match = _FIELD_NAME.search(declaration.strip())
    if not match:
        raise ValueError(f"'{declaration}' declares no name.")
    return match.group(1)


def field_names(declaration: str) -> tuple[str, ...]:
    """Returns the names that a field declares. A union without a name declares its members."""
    text = declaration.strip()
    if not (text.startswith("union {") and text.endswith("}")):
        return (field_name(text),)
    members = text.removeprefix("union {").removesuffix("}").split(";")
    return tuple(field_name(member) for member in members if member.strip())
