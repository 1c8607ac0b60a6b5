"""Exceptions of PyTorch, with its own texts."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from rgpu_client.torch.package import torch

if TYPE_CHECKING:
    from rgpu_common.arrays.messages import Failure

_KINDS: dict[str, Any] = {
    name: getattr(builtins, name)
    for name in (
        "ArithmeticError", "AssertionError", "AttributeError", "IndexError", "KeyError",
        "MemoryError", "NotImplementedError", "OverflowError", "RuntimeError", "TypeError",
        "ValueError", "ZeroDivisionError",
    )
}  # fmt: skip
_KINDS["OutOfMemoryError"] = torch.OutOfMemoryError
_KINDS["LinAlgError"] = _KINDS["_LinAlgError"] = torch.linalg.LinAlgError


def raised(failure: Failure) -> BaseException:
    """Returns the exception for an operation that failed on the node."""
    kind = _KINDS.get(failure.type.rpartition(".")[2], RuntimeError)
    error: BaseException = kind(failure.text)
    return error


def other_device(device: Any) -> RuntimeError:
    """The error of an operation on this device's tensors and on another's."""
    return RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"rgpu:0 and {device}!"
    )


def check_ordinal(index: int | None) -> None:
    """Takes the number of the only device; None: whichever it is.

    Raises:
        RuntimeError: there is no device of this number.
    """
    if index not in (None, 0):
        raise RuntimeError(f"invalid device ordinal: rgpu:{index}; there is one device, rgpu:0")


def other_session() -> RuntimeError:
    """The error of a tensor that was made in a session before."""
    return RuntimeError(
        "a tensor belongs to an earlier session with a GPU node, and its elements are lost: "
        "make it again"
    )
