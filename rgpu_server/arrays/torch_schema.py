"""Checks the form of a template's arguments against the schema of a PyTorch operator."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_common.arrays.messages import Tag
from rgpu_server.arrays.library import NotOfferedError, Slot

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    # True if a shown argument may stand where the schema has a type.
    Fits = Callable[[Any], bool]

torch: Any = import_module("torch")

_MOST_TEXT = 64


def check(schema: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Checks that each argument has the type that the schema has in its place.

    Raises:
        NotOfferedError: one has not.
    """
    declared = schema.arguments
    positional = [one for one in declared if not one.kwarg_only]
    if len(arguments) > len(positional):
        raise NotOfferedError(
            f"{schema.name} takes {len(positional)} arguments, {len(arguments)} were given"
        )
    named = {one.name: one for one in declared}
    pairs = list(zip(positional, arguments, strict=False))
    for name, value in keywords.items():
        if name not in named:
            raise NotOfferedError(f"{schema.name} has no argument {name[:_MOST_TEXT]!r}")
        pairs.append((named[name], value))
    for argument, value in pairs:
        if not (fits(str(argument.real_type))(value) and _fits_length(argument.N, value)):
            raise NotOfferedError(
                f"{schema.name} cannot take what was given for its argument {argument.name!r}, "
                f"which is of type {argument.real_type}"
            )


def fits(kind: str) -> Fits:
    """Returns the check for a type of the schema language, as `Optional[Tensor]`."""
    known = _KINDS.get(kind)
    if known is not None:
        return known
    outer, _, rest = kind.partition("[")
    inner = fits(rest[:-1]) if rest else _never
    if outer == "Optional":
        return lambda value: value is None or inner(value)
    if outer == "List":
        return lambda value: isinstance(value, list) and all(inner(one) for one in value)
    return _never


def _fits_length(wanted: int | None, value: Any) -> bool:
    """True if a list has the length that the schema says; one of 0 or 1 is a default. A length of 1
    says only that one number is taken too.
    """
    if wanted in (None, 1) or not isinstance(value, list):
        return True
    return len(value) in (0, 1, wanted)


def _never(value: Any) -> bool:
    return False


def _slot(value: Any, *kinds: str) -> bool:
    return isinstance(value, Slot) and value.kind in kinds


def _tensor(value: Any) -> bool:
    return _slot(value, Tag.SLOT_OBJECT, Tag.SLOT_SCALAR) or _number(value)


def _integer(value: Any) -> bool:
    return isinstance(value, int) or _slot(value, Tag.SLOT_VALUE)


def _float(value: Any) -> bool:
    return isinstance(value, int | float) or _slot(value, Tag.SLOT_VALUE)


def _number(value: Any) -> bool:
    return isinstance(value, complex) or _float(value) or _slot(value, Tag.SLOT_COMPLEX)


_KINDS: dict[str, Fits] = {
    "Tensor": _tensor,
    "Generator": lambda value: _slot(value, Tag.SLOT_OBJECT),
    "int": _integer,
    "SymInt": _integer,
    "bool": lambda value: isinstance(value, bool),
    "float": _float,
    "number": _number,
    "Scalar": _number,
    "str": lambda value: isinstance(value, str) and len(value) <= _MOST_TEXT,
    "ScalarType": lambda value: isinstance(value, torch.dtype),
    "Layout": lambda value: isinstance(value, torch.layout),
    "Device": lambda value: isinstance(value, torch.device),
    "MemoryFormat": lambda value: isinstance(value, torch.memory_format),
}
