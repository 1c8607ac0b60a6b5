"""Lets TorchScript say `cuda` for this device: `rgpu run --torch`.

A script is compiled from the text of a function, and asks PyTorch's C++ for a tensor's device,
which knows it as `rgpu` only. So the questions are translated where the text is read, and so are
the names of devices. What only a run of the script shows (a name in a variable, a script that was
compiled elsewhere) is refused when the script uses it.
"""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.package import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_views = torch._C._jit_tree_views
_frontend = torch.jit.frontend
# Variables that hold a device, and those that hold a string, of each function that is being read.
_devices: list[frozenset[str]] = []
_strings: list[frozenset[str]] = []
# Every operator that makes a tensor on a device, or moves one there, ends in one of these two.
_MAKING = ("empty.memory_format", "empty_strided")
_kept: list[Any] = []


def install() -> None:
    """Translates scripts that are compiled from now on."""
    builder = _frontend.ExprBuilder
    builder.build_Attribute = staticmethod(_attributes(builder.build_Attribute))
    builder.build_Call = staticmethod(_calls(builder.build_Call))
    _frontend.build_def = _definitions(_frontend.build_def)
    _refuse_cuda()


def stands_for(function: Any, operator: str) -> Any:
    """Has scripts use an operator where they call a function; returns the function."""
    torch.jit._builtins._register_builtin(function, operator)
    return function


def _refuse_cuda() -> None:
    """PyTorch would name the operator and list its backends, or look for NVIDIA's driver."""
    made = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        # PyTorch that was built for CUDA warns that it has these operators.
        warnings.simplefilter("ignore")
        for name in _MAKING:
            made.impl(name, _refused, "CUDA", allow_override=True)
    _kept.append(made)


def _refused(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        "a script uses the device cuda, which is not here, by a name that was not translated when "
        'the script was compiled: write device="cuda" where the script uses it and compile it '
        "here, or give the script a tensor and use its device"
    )


def renamed(name: str) -> str:
    """Returns the name of a device, as `cuda:0`, as PyTorch knows it here."""
    kind, colon, index = name.partition(":")
    return f"rgpu{colon}{index}" if kind == "cuda" else name


def _attributes(original: Any) -> Any:
    def build(ctx: Any, expr: Any) -> Any:
        return _translated(ctx, expr.value, expr.attr) or original(ctx, expr)

    return build


def _calls(original: Any) -> Any:
    """`getattr(x, "is_cuda")` is `x.is_cuda`. Devices that a call names are renamed."""

    def build(ctx: Any, expr: Any) -> Any:
        if getattr(expr.func, "id", "") == "getattr" and len(expr.args) == 2:
            value, name = expr.args
            made = _translated(ctx, value, getattr(name, "value", None))
            if made is not None:
                return made
        return original(ctx, _here(expr))

    return build


def _here(call: Any) -> Any:
    """Returns a call that names this device: `device="cuda"`, `x.to("cuda")`, `x.cuda()` and
    `torch.device("cuda", 0)`.
    """
    name, arguments = getattr(call.func, "attr", ""), call.args
    if name == "cuda" and not arguments and getattr(call.func.value, "id", "") != "self":
        func = ast.copy_location(ast.Attribute(call.func.value, "to", call.func.ctx), call.func)
        where = ast.copy_location(ast.Constant("rgpu:0"), call)
        where.end_col_offset = where.col_offset
        return ast.copy_location(ast.Call(func, [where], call.keywords), call)
    if _is_own(call.func):
        return call
    if name in ("to", "device") and arguments:
        arguments = [_named(arguments[0]), *arguments[1:]]
    keywords = [
        ast.copy_location(ast.keyword(one.arg, _named(one.value)), one)
        if one.arg == "device"
        else one
        for one in call.keywords
    ]
    return ast.copy_location(ast.Call(call.func, arguments, keywords), call)


def _is_own(function: Any) -> bool:
    """Whether the program's own function is called: it translates what it uses itself."""
    own = getattr(getattr(function, "value", None), "id", "") == "self"
    return own or isinstance(function, ast.Name)


def _named(value: Any) -> Any:
    """Returns the expression of a device with its name translated."""
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return ast.copy_location(ast.Constant(renamed(value.value)), value)
    if isinstance(value, ast.JoinedStr) and value.values:
        parts = [_named(value.values[0]), *value.values[1:]]
        return ast.copy_location(ast.JoinedStr(parts), value)
    if isinstance(value, ast.IfExp):
        made = ast.IfExp(value.test, _named(value.body), _named(value.orelse))
        return ast.copy_location(made, value)
    if isinstance(value, ast.Name) and _strings and value.id in _strings[-1]:
        func = ast.copy_location(ast.Attribute(value, "replace", value.ctx), value)
        words: list[Any] = [ast.copy_location(ast.Constant(one), value) for one in ("cuda", "rgpu")]
        return ast.copy_location(ast.Call(func, words, []), value)
    return value


def _definitions(original: Any) -> Any:
    def build(ctx: Any, py_def: Any, *arguments: Any, **keywords: Any) -> Any:
        _devices.append(_variables(py_def, _is_device, _says_device))
        _strings.append(_variables(py_def, _is_string, _says_string))
        try:
            return original(ctx, py_def, *arguments, **keywords)
        finally:
            _devices.pop()
            _strings.pop()

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


def _variables(definition: Any, is_one: Any, says_one: Any) -> frozenset[str]:
    """Returns the variables of a function that hold a device (or a string), as far as its text
    tells. is_one: what is assigned; says_one: the annotation of an argument.
    """
    found: set[str] = set()
    for one in ast.walk(definition):
        if isinstance(one, ast.Assign):
            pairs = [pair for target in one.targets for pair in _pairs(target, one.value)]
            found |= {name for name, value in pairs if is_one(value, found)}
        elif isinstance(one, ast.arg) and says_one(one.annotation):
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


def _is_string(value: Any, known: frozenset[str] | set[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in known
    if isinstance(value, ast.IfExp):
        return _is_string(value.body, known) and _is_string(value.orelse, known)
    return isinstance(value, ast.JoinedStr) or isinstance(getattr(value, "value", None), str)


def _says_string(value: Any) -> bool:
    return getattr(value, "id", getattr(value, "value", None)) == "str"
