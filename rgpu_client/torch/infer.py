"""Computes what an operator returns without its elements: PyTorch's own meta tensors do."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.storages import View, view_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Inferred:
    """What an operator does to tensors.

    results: for each of its returns the view of a new tensor, a list of such views, None where it
    returns nothing, or the argument that it returns (the place among the tensors given, as `At`).
    changed: the tensors whose sizes or strides it changes, with their new ones.
    """

    results: tuple[Any, ...]
    changed: tuple[tuple[int, View], ...]


@dataclass(frozen=True, slots=True)
class At:
    """The tensor among an operator's arguments, in their order."""

    place: int


class _Metas:
    """Tensors without elements, in place of those given."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.before: list[View] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if kind_of(value.device) == "cpu" and value.dim() == 0:
                return value
            return self._tensor(value)
        if isinstance(value, list | tuple):
            return [self.of(one) for one in value]
        if isinstance(value, torch.device):
            return _META
        if isinstance(value, torch.Generator):
            return None
        return value

    def _tensor(self, value: Any) -> Any:
        dtype, shape, stride, _, bits = view_of(value)
        made = torch.empty_strided(shape, stride, dtype=dtype, device=_META)
        if bits & 1:
            made = torch._conj(made)
        if bits & 2:
            made = torch._neg_view(made)
        self.made.append(made)
        self.before.append(view_of(made))
        return made


def infer(operator: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Inferred | None:
    """Returns what the operator returns for these tensors; None if only the node knows."""
    metas = _Metas()
    with torch._C.DisableTorchFunction():
        given = [metas.of(one) for one in arguments]
        named = {name: metas.of(one) for name, one in keywords.items()}
        try:
            returned = operator(*given, **named)
        except Exception:
            # Wrong arguments among them: the node's error is the one that users know.
            return None
        return _read(operator._schema, metas, returned)


def check(operator: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Checks the arguments of an operator, as far as PyTorch can without their elements.

    Raises:
        RuntimeError: PyTorch does not take these arguments.
    """
    metas = _Metas()
    with torch._C.DisableTorchFunction(), contextlib.suppress(NotImplementedError):
        given = [metas.of(one) for one in arguments]
        operator(*given, **{name: metas.of(one) for name, one in keywords.items()})


def _read(schema: Any, metas: _Metas, returned: Any) -> Inferred | None:
    several = returned if len(schema.returns) != 1 else (returned,)
    places = {id(made): At(at) for at, made in enumerate(metas.made)}
    results: list[Any] = []
    for one in several if several is not None else ():
        if one is None or isinstance(one, list | tuple):
            results.append(None if one is None else [_view(part) for part in one])
        elif not isinstance(one, torch.Tensor):
            return None
        else:
            results.append(places.get(id(one)) or _view(one))
    after = [view_of(made) for made in metas.made]
    pairs = enumerate(zip(metas.before, after, strict=True))
    changed = tuple((at, new) for at, (old, new) in pairs if old != new)
    return Inferred(tuple(results), changed)


def _view(one: Any) -> View | None:
    if one is None:
        return None
    if one.layout is not torch.strided:
        raise NotImplementedError(f"tensors of layout {one.layout} are not there on this device")
    dtype, shape, stride, offset, _ = view_of(one)
    return (dtype, shape, stride, offset if offset == 0 else 0, 0)


_META = torch.device("meta")
