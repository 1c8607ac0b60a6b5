"""Rules of the guards of PyTorch's operators. Each raises ValueError or IndexError."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

torch: Any = import_module("torch")

_INTEGERS = (torch.int64, torch.int32)


def require(holds: bool, what: str) -> None:
    """Raises ValueError if it does not hold."""
    if not holds:
        raise ValueError(what)


def same_shape(a: Any, b: Any, what: str) -> None:
    """Two tensors have one shape."""
    require(a.shape == b.shape, f"{what} must have one shape, not {_list(a)} and {_list(b)}")


def has_shape(a: Any, shape: Sequence[int], what: str) -> None:
    """A tensor has a shape."""
    require(tuple(a.shape) == tuple(shape), f"{what} must have shape {[*shape]}, not {_list(a)}")


def has_count(a: Any, count: int, what: str) -> None:
    """A tensor, if there is one, has so many elements."""
    if a is not None:
        require(a.numel() == count, f"{what} must have {count} elements, not {a.numel()}")


def inside(values: Any, size: int, what: str, low: int = 0) -> None:
    """All elements of a tensor of integers are from `low` to below `size`."""
    require(values.dtype in _INTEGERS, f"{what} must be int64 or int32")
    if not values.numel():
        return
    least, most = values.aminmax()
    if int(least) < low or int(most) >= size:
        raise IndexError(f"{what} must be from {low} to below {size}")


def leading(a: Any, b: Any, inner: int, what: str) -> None:
    """Two tensors have the same dimensions but for the `inner` last ones."""
    good = a.dim() == b.dim() >= inner and a.shape[:-inner] == b.shape[:-inner]
    require(good, f"{what} must agree in all but {inner} dimensions")


def broadcast(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """The shape to which two shapes broadcast.

    `torch.broadcast_shapes` imports SymPy and mpmath when it is called first, which a worker may
    not be able to read by then.
    """
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    pairs = list(zip(long, (*[1] * (len(long) - len(short)), *short), strict=True))
    good = all(m == n or 1 in (m, n) for m, n in pairs)
    require(good, f"{[*a]} and {[*b]} cannot be broadcast together")
    return tuple(n if m == 1 else m for m, n in pairs)


def numbers(values: Any) -> list[int]:
    """The elements of a list or of a tensor of integers of one dimension."""
    if isinstance(values, torch.Tensor):
        require(values.dim() == 1 and values.dtype in _INTEGERS, "lengths must be int64 in a row")
        return list(values.tolist())
    return [int(one) for one in values]


def rising(offsets: Any, size: int, what: str) -> None:
    """Each row of offsets begins at 0 or more, never falls, and ends at `size` or before."""
    inside(offsets, size + 1, what)
    require(bool((offsets.diff(dim=-1) >= 0).all()), f"{what} must not fall")


def _list(a: Any) -> list[int]:
    return list(a.shape)
