"""What PyTorch would ask of hooks in C++ that this device does not have."""

from __future__ import annotations

import functools
from typing import Any

from rgpu_client.torch import storages
from rgpu_client.torch.package import kind_of, torch

# Methods of script modules.
_WRITING = (
    "save", "save_to_buffer", "_save_for_lite_interpreter", "_save_to_buffer_for_lite_interpreter",
)  # fmt: skip


def install() -> None:
    """Makes pinned memory a no-op for this device, refuses DLPack, and makes `torch.compile` fall
    back to eager.
    """
    tensor = torch.Tensor
    tensor.pin_memory = _pin_memory
    tensor.is_pinned = _is_pinned
    torch._pin_memory = lambda tensor, device=None: tensor
    for name in ("__dlpack__", "__dlpack_device__"):
        setattr(tensor, name, here_or(getattr(tensor, name), _no_pointers))
    tensor.__cuda_array_interface__ = property(
        here_or(tensor.__cuda_array_interface__.__get__, _no_address)
    )
    torch.to_dlpack = torch.utils.dlpack.to_dlpack = here_or(torch.to_dlpack, _no_pointers)
    for name in _WRITING:
        script = torch.jit.RecursiveScriptModule
        setattr(script, name, _told_or(getattr(script, name)))
    wrapper = torch._TorchCompileInductorWrapper
    wrapper.__call__ = _eager_or(wrapper.__call__)


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


def _told_or(original: Any) -> Any:
    """PyTorch's C++ writes the tensors of a script module, by the sizes of their storages."""

    @functools.wraps(original)
    def save(self: Any, *arguments: Any, **keywords: Any) -> Any:
        for one in (*self.parameters(), *self.buffers()):
            if is_here(one):
                storages.told_size(one.untyped_storage())
        return original(self, *arguments, **keywords)

    return save


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
