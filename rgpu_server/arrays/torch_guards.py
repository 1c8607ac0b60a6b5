"""What PyTorch's CPU build does not check itself.

Some operators trust what comes to them, because autograd or another operator made it: indices,
sizes that belong together, statistics of a forward pass. On the CPU, a wrong one reads or writes
anywhere in the process. These guards look first. A GPU's memory is guarded by its driver; a node
with a GPU computes on its CPU too, with the tensors that a session has there.

A guard looks at a copy where the operator writes to the memory that an index lies in: it would
write a result there before it reads the index.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rgpu_server.arrays import torch_guards_loss, torch_guards_parts, torch_guards_shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Guard = Callable[[Mapping[str, Any]], None]

torch: Any = import_module("torch")


def _private(given: Mapping[str, Any]) -> None:
    """The operator checks its indices itself, but writes results before it uses them. So it needs
    no more than the copies that every guarded operator gets.
    """


GUARDS: dict[str, Guard] = {
    **dict.fromkeys(("multilabel_margin_loss_forward", "searchsorted"), _private),
    **torch_guards_shapes.GUARDS,
    **torch_guards_loss.GUARDS,
    **torch_guards_parts.GUARDS,
}


def guarded(
    name: str, call: Callable[..., Any], schema: Any, *, gpu: bool = False
) -> Callable[..., Any]:
    """Returns a call of an operator that looks at its arguments first.

    Args:
        name: the operator, as `aten::lcm.out`. Its overloads may have one guard.
        call: executes it.
        schema: gives the names and defaults of arguments.
        gpu: the node has a GPU. An operator that the GPU executes is not looked at, one that the
            node's processor executes is.
    """
    full = name.removeprefix("aten::")
    guard = GUARDS.get(full) or GUARDS.get(full.partition(".")[0])
    if guard is None:
        return call
    names = [one.name for one in schema.arguments]
    defaults = {one.name: one.default_value for one in schema.arguments}
    written = [one.name for one in schema.arguments if _is_written(one)]

    def run(*arguments: Any, **keywords: Any) -> Any:
        if gpu and not _on_host([*arguments, *keywords.values()]):
            return call(*arguments, **keywords)
        given = {**defaults, **dict(zip(names, arguments, strict=False)), **keywords}
        try:
            if written:
                _separate(given, written)
            guard(given)
        except AttributeError:
            # A number in the place of a tensor.
            raise TypeError(f"{name} got an argument of a wrong type") from None
        positional = [given[one] for one in names[: len(arguments)]]
        return call(*positional, **{one: given[one] for one in keywords})

    return run


def _on_host(values: Sequence[Any]) -> bool:
    """True if the CPU executes an operator with these arguments. A number may lie there anyway."""
    tensors = [one for value in values for one in _tensors(value)]
    there = [one for one in tensors if one.device.type == "cpu"]
    return any(one.dim() for one in there) or len(there) == len(tensors)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)


def _separate(given: dict[str, Any], written: Sequence[str]) -> None:
    """Puts copies in the place of integers that lie in a storage to which an operator writes."""
    storages = {_storage(one) for name in written for one in _tensors(given[name])}
    for name, value in given.items():
        if name not in written and _is_index(value) and _storage(value) in storages:
            given[name] = value.clone()


def _is_index(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (torch.int64, torch.int32)


def _tensors(value: Any) -> list[Any]:
    several = value if isinstance(value, list | tuple) else [value]
    return [one for one in several if isinstance(one, torch.Tensor)]


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)
