"""What PyTorch would ask of hooks in C++ that this device does not have."""

from __future__ import annotations

import functools
from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.dispatch import setting_default
from rgpu_client.torch.package import kind_of, torch

if TYPE_CHECKING:
    from collections.abc import Iterator


def install() -> None:
    """Makes pinned memory a no-op, refuses DLPack, makes `torch.compile` fall back to eager, and
    has the node follow the default dtype.
    """
    for name in ("set_default_dtype", "set_default_tensor_type"):
        setattr(torch, name, setting_default(getattr(torch, name)))
    tensor = torch.Tensor
    tensor.pin_memory = _pin_memory
    tensor.is_pinned = _is_pinned
    torch._pin_memory = lambda tensor, device=None: tensor
    for name in ("to", "type"):
        setattr(tensor, name, _blocking(getattr(tensor, name)))
    _make_unpinned()
    for name in ("__dlpack__", "__dlpack_device__"):
        setattr(tensor, name, here_or(getattr(tensor, name), _no_pointers))
    tensor.__cuda_array_interface__ = property(
        here_or(tensor.__cuda_array_interface__.__get__, _no_address)
    )
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = here_or(torch.to_dlpack, _no_pointers)
    wrapper = torch._TorchCompileInductorWrapper
    wrapper.__call__ = _eager_or(wrapper.__call__)


def _make_unpinned() -> None:
    """Has functions that make tensors ignore `pin_memory`. C++ would ask for an allocator of this
    device, which cannot be written in Python.
    """
    # These tables tell functions by their identity: they know the originals, and learn the others.
    import_module("torch.utils._device")._device_constructors()
    builtins = torch.jit._builtins
    known = {name.partition(".")[0] for name in _pinning_operators()} | {"tensor", "new_tensor"}
    for owner in (torch, torch.Tensor):
        for name in sorted(known & set(dir(owner))):
            original = getattr(owner, name)
            made = _unpinned(original)
            # Pickle finds it so.
            made.__qualname__ = name if owner is torch else f"Tensor.{name}"
            setattr(owner, name, made)
            operator = builtins._find_builtin(original)
            if operator is not None:
                builtins._register_builtin(made, operator)


def _pinning_operators() -> Iterator[str]:
    for name in torch._C._dispatch_get_all_op_names():
        short = name.removeprefix("aten::")
        if name.startswith("aten::") and not short.startswith(("_", "sparse", "to")):
            packet = name.partition(".")[0]
            for schema in torch._C._jit_get_schemas_for_operator(packet):
                if any(one.name == "pin_memory" for one in schema.arguments):
                    yield short


def _unpinned(original: Any) -> Any:
    @functools.wraps(original)
    def make(*arguments: Any, **keywords: Any) -> Any:
        keywords.pop("pin_memory", None)
        return original(*arguments, **keywords)

    return make


def _blocking(original: Any) -> Any:
    """A copy of a tensor of this device waits for the node in any case. Asked not to block, C++
    would pin the memory that it copies to.
    """

    @functools.wraps(original)
    def copy(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if keywords.get("non_blocking") and is_here(self):
            keywords["non_blocking"] = False
        elif True in arguments[1:3] and is_here(self):
            # (device, non_blocking, copy) or (device, dtype, non_blocking, copy)
            at = 1 if isinstance(arguments[1], bool) else 2
            arguments = (*arguments[:at], False, *arguments[at + 1 :])
        return original(self, *arguments, **keywords)

    return copy


def _pin_memory(self: Any, device: Any = None) -> Any:
    """Returns the tensor: memory that is pinned would not make a transfer to a node faster."""
    return self


def _is_pinned(self: Any, device: Any = None) -> bool:
    """No memory is pinned."""
    return False


def here_or(original: Any, instead: Any) -> Any:
    """Returns a function that does something else for tensors and storages of this device."""

    @functools.wraps(original)
    def chosen(self: Any, *arguments: Any, **keywords: Any) -> Any:
        if is_here(self):
            return instead(self, *arguments, **keywords)
        return original(self, *arguments, **keywords)

    return chosen


def _no_pointers(self: Any, *_: Any, **__: Any) -> Any:
    raise BufferError(
        "the elements of a tensor of the device rgpu are on a GPU node, so there is no pointer for "
        "DLPack: use tensor.cpu()"
    )


def _no_address(self: Any) -> Any:
    raise AttributeError(
        "a tensor of the device rgpu has no __cuda_array_interface__: its elements are on a GPU "
        "node, so use tensor.cpu()"
    )


def _eager_or(original: Any) -> Any:
    """Graphs on this device are not compiled: their operators go to the node one by one."""

    @functools.wraps(original)
    def compile_graph(self: Any, model: Any, inputs: Any) -> Any:
        state = [*model.parameters(), *model.buffers()] if hasattr(model, "parameters") else []
        if any(is_here(one) for one in (*inputs, *state)) or _makes_here(model):
            return model.forward
        return original(self, model, inputs)

    return compile_graph


def is_here(value: Any) -> bool:
    """True for a tensor and a storage of this device."""
    known = isinstance(value, torch.Tensor | torch.UntypedStorage)
    return known and kind_of(value.device) == "rgpu"


def _makes_here(model: Any) -> bool:
    """True if a graph makes tensors on this device."""
    nodes = getattr(getattr(model, "graph", None), "nodes", ())
    return any(
        isinstance(one, torch.device) and kind_of(one) == "rgpu"
        for node in nodes
        for one in node.kwargs.values()
    )
