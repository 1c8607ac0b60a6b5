"""Generates the checks of arguments that an exported function makes before its body runs."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from cudaspec import length
from cudaspec.model import Device, Flags, Image, In, InOut, Layout, NotZero, Out, Range, Value

if TYPE_CHECKING:
    from collections.abc import Container

    from cudaspec.model import Arg
    from cudaspec.rows import CallRow

_INVALID_DEVICE = "CUDA_ERROR_INVALID_DEVICE"
_INVALID_VALUE = "CUDA_ERROR_INVALID_VALUE"


def guards(call: CallRow, namespace: str, nullable: Container[str] = ()) -> list[str]:
    """Returns the statements, in the order of the row's arguments; neighbours share one.

    nullable: pointers that are not checked, whatever the row says.
    """
    leave = "LeaveInContext" if call.row.current else "Leave"
    checks = [
        check
        for name, arg in call.row.args.items()
        if name not in nullable and (check := _check(name, arg))
    ]
    lines = []
    for error, group in itertools.groupby(checks, key=lambda check: check[0]):
        condition = " || ".join(text for _, text in group).replace("@", f"{namespace}::")
        lines.append(f"  if ({condition}) return entry.{leave}({error});")
    return lines


def _check(name: str, arg: Arg) -> tuple[str, str] | None:
    """Returns the error and the condition under which it is returned; None: no check."""
    match arg:
        case Device():
            return _INVALID_DEVICE, f"!@IsDevice({name})"
        case Flags(bits=bits):
            return _INVALID_VALUE, _outside(name, bits)
        case Range(least=least, most=most):
            return _INVALID_VALUE, _beyond(name, least, most)
        case NotZero():
            return _INVALID_VALUE, f"{name} == 0"
        case Image() | Value(nullable=True):
            return None
        case In(nullable=True) | Out(nullable=True) | InOut(nullable=True) | Layout(nullable=True):
            return None
        case In(late=late) | Out(late=late) | Layout(late=late) if late:
            return None
        case In(empty=True, len=size, count=count):
            some = length.cpp(size or count or "1", str)
            return _INVALID_VALUE, f"({name} == nullptr && {some} != 0)"
        case _:
            return _INVALID_VALUE, f"{name} == nullptr"


def _outside(name: str, bits: tuple[str, ...]) -> str:
    if not bits:
        return f"{name} != 0"
    known = " | ".join(f"static_cast<unsigned>({bit})" for bit in bits)
    return f"({name} & ~({known})) != 0"


def _beyond(name: str, least: int | str | None, most: int | str | None) -> str:
    limits = [f"{name} < {least}"] if least is not None else []
    limits += [f"{name} > {most}"] if most is not None else []
    return " || ".join(limits)
