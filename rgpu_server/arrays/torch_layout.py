"""The layout that a client expects of the results of an operation.

The client computes dtype, shape and strides of results itself, and makes views of them without
asking. So a result whose strides differ is copied into the layout that the client expects.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.arrays.messages import MOST_DIMENSIONS, MOST_ID, MOST_ITEMS
from rgpu_server.arrays.library import NotOfferedError

if TYPE_CHECKING:
    from collections.abc import Sequence

torch: Any = import_module("torch")

_MOST_BYTES = 1 << 46


class Layout(Struct, frozen=True):
    """dtype, and sizes and strides in elements, of one result."""

    dtype: Any
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements the storage has."""
        if 0 in self.shape:
            return 0
        return 1 + sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))

    def fit(self, tensor: Any) -> Any:
        """Returns the tensor in this layout.

        Raises:
            RuntimeError: its dtype or shape differs.
        """
        if tensor.shape != self.shape or tensor.dtype != self.dtype:
            raise RuntimeError(
                f"the node's PyTorch returned {_described(tensor)}, and the client's expects "
                f"{list(self.shape)} of {self.dtype}: install the same release on both sides"
            )
        if tensor.is_conj() or tensor.is_neg():
            tensor = tensor.resolve_conj().resolve_neg()
        if tensor.storage_offset() == 0:
            if tensor.stride() == self.stride:
                return tensor
            if self._same(tensor.stride()):
                return tensor.as_strided(self.shape, self.stride)
        made = torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=tensor.device)
        return made.copy_(tensor)

    def _same(self, stride: Sequence[int]) -> bool:
        """True if the strides place every element alike: those of one element do not matter."""
        rows = zip(self.shape, self.stride, stride, strict=True)
        return 0 in self.shape or all(n == 1 or a == b for n, a, b in rows)


class Layouts(Struct, frozen=True):
    """The layouts of an operation's results. None stands for a result that is not defined.

    size: the bytes of all of them.
    """

    results: tuple[Layout | None, ...]
    size: int

    @classmethod
    def parsed(cls, text: str) -> Layouts:
        """Reads `float32:2,3:3,1;-;int64::`: dtype, sizes and strides of each result.

        Raises:
            NotOfferedError: the text has another form.
        """
        try:
            results = tuple(_parsed(one) for one in text.split(";")) if text else ()
        except ValueError:
            raise NotOfferedError("the layout of a result has a wrong form") from None
        size = sum(one.elements * one.dtype.itemsize for one in results if one is not None)
        if len(results) > MOST_ITEMS or size > _MOST_BYTES:
            raise NotOfferedError("the results of an operation are too large")
        return cls(results, size)

    def fit(self, results: Sequence[Any], spare: Sequence[int] = ()) -> list[Any]:
        """Returns the defined results in their layouts.

        spare: the places of results that the CPU build may leave empty, because nothing reads them.

        Raises:
            RuntimeError: there are others than expected.
        """
        if len(results) != len(self.results):
            raise RuntimeError(
                f"the operation has {len(results)} results, and the client expects "
                f"{len(self.results)}: install the same release of PyTorch on both sides"
            )
        fitted = []
        for at, (layout, one) in enumerate(zip(self.results, results, strict=True)):
            if layout is None:
                continue
            if at in spare and one is not None and one.numel() == 0:
                fitted.append(one.new_zeros(layout.shape))
                continue
            if one is None:
                raise RuntimeError("the node's PyTorch did not return a result that was expected")
            fitted.append(layout.fit(one))
        return fitted


def dtype_named(name: str) -> Any:
    """Returns a dtype. Raises NotOfferedError."""
    found = getattr(torch, name, None) if name in _DTYPES else None
    if found is None:
        raise NotOfferedError(f"there is no dtype {name!r} in PyTorch {torch.__version__}")
    return found


def dtype_name(dtype: Any) -> str:
    """Returns the name without `torch.`"""
    return str(dtype).partition(".")[2]


def _parsed(text: str) -> Layout | None:
    if text == "-":
        return None
    dtype, shape, stride = text.split(":")
    made = Layout(dtype_named(dtype), _numbers(shape), _numbers(stride))
    if len(made.shape) != len(made.stride) or len(made.shape) > MOST_DIMENSIONS:
        raise ValueError
    if math.prod(made.shape) > MOST_ID:
        raise ValueError
    return made


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(one) for one in text.split(",")) if text else ()
    if any(not 0 <= one <= MOST_ID for one in numbers):
        raise ValueError
    return numbers


def _described(tensor: Any) -> str:
    return f"{list(tensor.shape)} of {tensor.dtype}"


# Quantized dtypes, and those that stand for bits, are not offered.
_DTYPES = frozenset(
    name
    for name, value in vars(torch).items()
    if isinstance(value, torch.dtype) and not name.startswith(("q", "bit"))
)
