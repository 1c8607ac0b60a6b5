"""Stand-ins on the CPU build for operators whose dtypes differ from those of GPUs.

A GPU keeps the statistics of a normalization in float32 where its input is half as wide, and the
client expects what a GPU returns. The CPU build keeps them in the dtype of the input. And products
of matrices that are summed in another dtype are there for GPUs alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

torch: Any = import_module("torch")

_NARROW = (torch.float16, torch.bfloat16)
# Where the statistics that a batch changes in place are among the arguments.
_RUNNING = (3, 4)


def _normalizing(name: str, *running: int) -> Callable[..., Any]:
    """The operator in float32. The statistics that it returns behind the first result stay so."""
    call = _operator(name)

    def normalize(given: Any, *rest: Any) -> Any:
        if given.dtype not in _NARROW:
            return call(given, *rest)
        arguments = (given, *rest)
        wide = [_widened(one) for one in arguments]
        first, *statistics = call(*wide)
        for at in running:
            if arguments[at] is not wide[at]:
                arguments[at].copy_(wide[at])
        return first.to(given.dtype), *statistics

    return normalize


def _normalizing_backward(name: str, weight: int) -> Callable[..., Any]:
    """The gradients of the input, and of weight and bias, which are of the weight's dtype.

    weight: where it is among the arguments.
    """
    call = _operator(name)

    def backward(grad: Any, *rest: Any) -> Any:
        if grad.dtype not in _NARROW:
            return call(grad, *rest)
        arguments = (grad, *rest)
        first, *others = call(*[_widened(one) for one in arguments])
        scale = arguments[weight]
        dtype = grad.dtype if scale is None else scale.dtype
        return _narrowed(first, grad.dtype), *[_narrowed(one, dtype) for one in others]

    return backward


def _product(name: str) -> Callable[..., Any]:
    """The product of matrices whose sums are in the dtype that is the last argument."""
    call = _operator(name)

    def multiply(*arguments: Any, out: Any = None, **numbers: Any) -> Any:
        *matrices, dtype = arguments
        made = call(*[one.to(dtype) for one in matrices], **numbers)
        if out is None:
            return made
        return out.resize_(made.shape).copy_(made)

    return multiply


def _operator(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _widened(value: Any) -> Any:
    narrow = isinstance(value, torch.Tensor) and value.dtype in _NARROW
    return value.float() if narrow else value


def _narrowed(value: Any, dtype: Any) -> Any:
    return None if value is None else value.to(dtype)


STAND_INS: dict[str, Any] = {
    "aten::native_layer_norm": _normalizing("aten::native_layer_norm"),
    "aten::native_layer_norm_backward": _normalizing_backward(
        "aten::native_layer_norm_backward", 5
    ),
    "aten::native_batch_norm": _normalizing("aten::native_batch_norm", *_RUNNING),
    "aten::_native_batch_norm_legit": _normalizing("aten::_native_batch_norm_legit", *_RUNNING),
    "aten::_native_batch_norm_legit.no_stats": _normalizing(
        "aten::_native_batch_norm_legit.no_stats"
    ),
    "aten::_native_batch_norm_legit_no_training": _normalizing(
        "aten::_native_batch_norm_legit_no_training"
    ),
    "aten::_batch_norm_with_update": _normalizing("aten::_batch_norm_with_update", *_RUNNING),
    "aten::_batch_norm_no_update": _normalizing("aten::_batch_norm_no_update"),
    "aten::native_batch_norm_backward": _normalizing_backward(
        "aten::native_batch_norm_backward", 2
    ),
    "aten::batch_norm_backward": _normalizing_backward("aten::batch_norm_backward", 2),
    **{
        f"aten::{name}.dtype{suffix}": _product(f"aten::{name}")
        for name in ("mm", "bmm", "addmm", "baddbmm")
        for suffix in ("", "_out")
    },
}
