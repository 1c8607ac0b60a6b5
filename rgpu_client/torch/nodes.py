"""Writes the arguments of an operator as the nodes of a template, once for each template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_client.torch.errors import check_ordinal
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.spec import Number
from rgpu_client.torch.storages import name_of
from rgpu_common.arrays.messages import Tag

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_QUANTIZED = (torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4)
_OBJECT, _VALUE, _COMPLEX = [Tag.SLOT_OBJECT], [Tag.SLOT_VALUE], [Tag.SLOT_COMPLEX]


def node(value: Any, floats: bool = True) -> Any:
    """Returns the node of an argument. floats: they become slots, not constants.

    Raises:
        NotImplementedError: an argument of this type cannot be sent.
    """
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if type(value) is Number:
        return _VALUE
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _VALUE if floats else value
    if isinstance(value, complex):
        return _COMPLEX if floats else [Tag.COMPLEX, value.real, value.imag]
    if isinstance(value, list | tuple):
        return [Tag.LIST, *[node(one, floats) for one in value]]
    if isinstance(value, torch.Generator):
        return _OBJECT
    return _constant(value)


def nodes(
    arguments: Sequence[Any], keywords: Mapping[str, Any], floats: bool = True
) -> tuple[list[Any], dict[str, Any]]:
    """Returns the nodes of all arguments. Errors as `node`."""
    positional = [node(one, floats) for one in arguments]
    return positional, {name: node(one, floats) for name, one in keywords.items()}


def _tensor(value: Any) -> Any:
    if kind_of(value.device) != "cpu":
        return _OBJECT
    return [Tag.SLOT_SCALAR, name_of(value.dtype)]


def _constant(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        if value in _QUANTIZED:
            raise NotImplementedError(
                f"tensors of the quantized dtype {value} are not offered on the device rgpu: use "
                "tensor.cpu() before"
            )
        return [Tag.DTYPE, name_of(value)]
    if isinstance(value, torch.device):
        if kind_of(value) == "cpu":
            return [Tag.LIBRARY, "device", "cpu"]
        check_ordinal(value.index)
        return [Tag.LIBRARY, "device", "this"]
    if isinstance(value, torch.layout):
        return [Tag.LIBRARY, "layout", name_of(value)]
    if isinstance(value, torch.memory_format):
        return [Tag.LIBRARY, "memory_format", name_of(value)]
    raise NotImplementedError(
        f"an argument of type {type(value).__name__} cannot be sent to a node"
    )
