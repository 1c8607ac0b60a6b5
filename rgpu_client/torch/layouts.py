"""Refuses tensors that are no plain arrays of elements: sparse, quantized and nested ones.

PyTorch gives each kind a dispatch key of its own for each device. An operator gets there that makes
such a tensor of this device, and one that is given such a tensor of the CPU beside one of this
device.
"""

from __future__ import annotations

from typing import Any, NoReturn

_SPARSE = "sparse", "tensor.to_dense()"
_QUANTIZED = "quantized", "tensor.dequantize()"
_NESTED = "nested", "torch.nested with layout=torch.jagged"
# By dispatch key: what the tensors are called, and what to do.
_KINDS = {
    "SparsePrivateUse1": _SPARSE,
    "SparseCsrPrivateUse1": _SPARSE,
    "QuantizedPrivateUse1": _QUANTIZED,
    "NestedTensorPrivateUse1": _NESTED,
}
# These make such tensors of plain ones, or without an operator that has no kernel.
_MAKES = (
    ("SparseCsrPrivateUse1", "_sparse_compressed_tensor_unsafe", _SPARSE),
    ("PrivateUse1", "_nested_tensor_from_tensor_list", _NESTED),
    ("PrivateUse1", "_nested_view_from_buffer", _NESTED),
)


class _Refusing:
    """The kernel of one operator, or of all that have none, for a kind of tensors."""

    def __init__(self, kind: str, instead: str, name: str = "") -> None:
        self._kind, self._instead, self._name = kind, instead, name

    @property
    def __name__(self) -> str:
        return "rgpu"

    def __call__(self, *arguments: Any, **_: Any) -> NoReturn:
        name = self._name or arguments[0]._schema.name
        raise NotImplementedError(
            f"{name}: {self._kind} tensors are not offered on the device rgpu: use "
            f"{self._instead}, or compute with tensor.cpu()"
        )


def register(fallback: Any, own: Any) -> None:
    """Registers what refuses such tensors.

    Args:
        fallback: the library of kernels for all operators.
        own: the library of kernels of `aten`.
    """
    for key, kind in _KINDS.items():
        fallback.fallback(_Refusing(*kind), key)
    for key, name, kind in _MAKES:
        own.impl(name, _Refusing(*kind, f"aten::{name}"), key)
