"""Lets TorchScript say `cuda` for this device: `rgpu run --torch`.

A script is compiled from the text of a function, and asks PyTorch's C++ for a tensor's device,
which knows it as `rgpu` only. So the questions are translated where the text is read.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.package import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_views = torch._C._jit_tree_views
_frontend = torch.jit.frontend
# Variables that hold a device, of each function that is being read.
_devices: list[frozenset[str]] = []


def install() -> None:
    """Translates scripts that are compiled from now on."""
    builder = _frontend.ExprBuilder
    builder.build_Attribute = staticmethod(_attributes(builder.build_Attribute))
    builder.build_Call = staticmethod(_calls(builder.build_Call))
    _frontend.build_def = _definitions(_frontend.build_def)


def stands_for(function: Any, operator: str) -> Any:
    """Has scripts use an operator where they call a function; returns the function."""
    torch.jit._builtins._register_builtin(function, operator)
    return function


def _attributes(original: Any) -> Any:
    def build(ctx: Any, expr: Any) -> Any:
        return _translated(ctx, expr.value, expr.attr) or original(ctx, expr)

    return build


def _calls(original: Any) -> Any:
    """`getattr(x, "is_cuda")` is `x.is_cuda`."""

    def build(ctx: Any, expr: Any) -> Any:
        if getattr(expr.func, "id", "") == "getattr" and len(expr.args) == 2:
            value, name = expr.args
            made = _translated(ctx, value, getattr(name, "value", None))
            if made is not None:
                return made
        return original(ctx, expr)

    return build


def _definitions(original: Any) -> Any:
    def build(ctx: Any, py_def: Any, *arguments: Any, **keywords: Any) -> Any:
        _devices.append(_named_devices(py_def))
        try:
            return original(ctx, py_def, *arguments, **keywords)
        finally:
            _devices.pop()

    return build


def _translated(ctx: Any, value: Any, name: Any) -> Any:
    """Returns what is asked in place of an attribute; None: the attribute itself.

    `x.is_cuda` becomes `x.device.type == "rgpu"`, `x.device.type` becomes
    `x.device.type.replace("rgpu", "cuda")`, which computes x once.
    """
    if name == "is_cuda" and getattr(value, "id", "") != "self":
        tensor = _frontend.build_expr(ctx, value)
        place = tensor.range()
        kind = _selected(_selected(tensor, "device"), "type")
        return _views.BinOp("==", kind, _views.StringLiteral(place, "rgpu"))
    if name == "type" and _is_device(value, _devices[-1] if _devices else frozenset()):
        kind = _selected(_frontend.build_expr(ctx, value), "type")
        texts = [_views.StringLiteral(kind.range(), one) for one in ("rgpu", "cuda")]
        return _views.Apply(_selected(kind, "replace"), texts, [])
    return None


def _selected(value: Any, name: str) -> Any:
    return _views.Select(value, _views.Ident(value.range(), name))


def _named_devices(definition: Any) -> frozenset[str]:
    """Returns the variables of a function that hold a device, as far as its text tells."""
    found: set[str] = set()
    for one in ast.walk(definition):
        if isinstance(one, ast.Assign):
            pairs = [pair for target in one.targets for pair in _pairs(target, one.value)]
            found |= {name for name, value in pairs if _is_device(value, found)}
        elif isinstance(one, ast.arg) and _says_device(one.annotation):
            found.add(one.arg)
    return frozenset(found)


def _pairs(target: Any, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the variables of an assignment with what each is given."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, part in zip(target.elts, value.elts, strict=False):
            yield from _pairs(one, part)


def _is_device(value: Any, known: frozenset[str] | set[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in known
    return _says_device(value.func if isinstance(value, ast.Call) else value)


def _says_device(value: Any) -> bool:
    if isinstance(value, ast.Constant):
        return value.value == "torch.device"
    return isinstance(value, ast.Attribute) and value.attr == "device"
