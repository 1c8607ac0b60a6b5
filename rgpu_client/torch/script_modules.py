"""How script modules (TorchScript) are moved to this device, saved, and loaded.

A script module belongs to PyTorch's C++, which writes and reads its tensors by their memory:
parameters, buffers, other attributes, and constants in the graphs of methods, as those of a traced
or frozen module.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from rgpu_client.torch import storages
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.patches import is_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_WRITING = (
    "save", "save_to_buffer", "_save_for_lite_interpreter", "_save_to_buffer_for_lite_interpreter",
)  # fmt: skip
# The parts of a file that say of each tensor which device it was on.
_TENSORS = {"data.pkl", "constants.pkl"}
# How files name this device.
devices = {b"rgpu"}


def install() -> None:
    """Makes script modules work with tensors of this device."""
    # A traced module is a ScriptModule, which has copies of a RecursiveScriptModule's methods.
    for kind in (torch.jit.ScriptModule, torch.jit.RecursiveScriptModule):
        for name in _WRITING:
            setattr(kind, name, _told_or(getattr(kind, name)))
    torch.jit.ScriptModule._apply = _applied
    torch.jit.load = _moved_or(torch.jit.load)


def _applied(self: Any, function: Any, recurse: bool = True) -> Any:
    """Moves or converts the parameters and buffers of a script module, as `to` and `cuda` ask.

    C++ has the parameters of a script module, too, so those of another device are new ones. Tensors
    that are shared stay so.
    """
    known: dict[Any, Any] = {}
    for part in self.modules() if recurse else (self,):
        for name, one in list(part.named_parameters(recurse=False, remove_duplicate=False)):
            if one not in known:
                known[one] = _converted(one, function)
            part._c.setattr(name, known[one])
        for name, one in list(part.named_buffers(recurse=False, remove_duplicate=False)):
            if one not in known:
                known[one] = function(one)
            part._c.setattr(name, known[one])
    return self


def _converted(parameter: Any, function: Any) -> Any:
    """Returns a parameter with other elements: the same one where PyTorch can give it them."""
    with torch.no_grad():
        made = function(parameter)
    gradient = None if parameter.grad is None else function(parameter.grad)
    if torch._has_compatible_shallow_copy_type(parameter, made):
        parameter.data = made
        found = parameter
    else:
        found = torch.nn.Parameter(made, parameter.requires_grad)
    found.grad = gradient
    return found


def _told_or(original: Any) -> Any:
    """PyTorch's C++ writes the tensors of a script module, by the sizes of their storages."""

    def told(one: Any) -> Any:
        if is_here(one):
            storages.told_size(one.untyped_storage())
        return one

    @functools.wraps(original)
    def save(self: Any, *arguments: Any, **keywords: Any) -> Any:
        for one in (*self.parameters(), *self.buffers()):
            told(one)
        for node in _constants(self):
            told(node.t("value"))
        for part, name in _attributes(self):
            _each(part._c.getattr(name), told)
        return original(self, *arguments, **keywords)

    return save


def _moved_or(original: Any) -> Any:
    """PyTorch's C++ reads tensors into memory, so a script module is read here and then moved."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *arguments: Any, **keywords: Any) -> Any:
        where = torch.device(map_location) if isinstance(map_location, str) else map_location
        if where is None and _is_of_here(f):
            where = torch.device("rgpu", 0)
        if where is None or kind_of(where) != "rgpu":
            return original(f, map_location, *arguments, **keywords)
        return _moved(original(f, "cpu", *arguments, **keywords), where)

    return load


def _is_of_here(file: Any) -> bool:
    """Whether a script module was saved from this device, to which it goes if nobody says where."""
    place = file.tell() if hasattr(file, "tell") else 0
    try:
        reader = torch._C.PyTorchFileReader(file if hasattr(file, "read") else os.fspath(file))
        there = _TENSORS & set(reader.get_all_records())
        return any(b"%s:" % name in reader.get_record(one) for one in there for name in devices)
    except (RuntimeError, OSError, TypeError):
        # PyTorch says what is wrong with it.
        return False
    finally:
        if hasattr(file, "seek"):
            file.seek(place)


def _moved(module: Any, where: Any) -> Any:
    """Returns a script module with all its tensors moved. Those that are shared stay so."""
    known: dict[Any, Any] = {}

    def moved(one: Any) -> Any:
        if one not in known:
            known[one] = one.detach().to(where).requires_grad_(one.requires_grad)
        return known[one]

    for part in module.modules():
        own = (part.named_parameters, part.named_buffers)
        for name, one in [pair for named in own for pair in named("", False, False)]:
            part._c.setattr(name, moved(one))
    for node in _constants(module):
        node.t_("value", moved(node.t("value")))
    for part, name in _attributes(module):
        part._c.setattr(name, _each(part._c.getattr(name), moved))
    return module


def _constants(module: Any) -> Iterator[Any]:
    """Yields the nodes of a script module's graphs that are a tensor."""
    for graph in _graphs(module):
        for node in graph.findAllNodes("prim::Constant"):
            if node.hasAttribute("value") and node.kindOf("value") == "t":
                yield node


def _attributes(module: Any) -> Iterator[tuple[Any, str]]:
    """Yields the parts of a script module with the names of attributes that hold tensors, and are
    neither parameters nor buffers. Python finds those that some method names.
    """
    names = {
        node.s("name") for graph in _graphs(module) for node in graph.findAllNodes("prim::GetAttr")
    }
    for part in module.modules():
        known = {name for name, _ in (*part.named_parameters(), *part.named_buffers())}
        for name in names - known:
            if part._c.hasattr(name) and _has_tensors(part._c.getattr(name)):
                yield part, name


def _graphs(module: Any) -> Iterator[Any]:
    """Yields the graphs of a script module's methods."""
    for part in module.modules():
        for name in part._c._method_names():
            graph = part._c._get_method(name).graph
            # A function that is called has a graph of its own, which Python cannot reach.
            if graph.findAllNodes("prim::CallFunction"):
                torch._C._jit_pass_inline(graph)
            yield graph


def _has_tensors(value: Any) -> bool:
    found: list[Any] = []
    _each(value, found.append)
    return bool(found)


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a value of TorchScript with what a function makes of each tensor in it."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(_each(one, change) for one in value)
    if isinstance(value, dict):
        return {name: _each(one, change) for name, one in value.items()}
    return value
