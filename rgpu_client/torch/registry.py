"""Registers the kernels of this device with PyTorch's dispatcher."""

from __future__ import annotations

from typing import Any

from rgpu_client.torch import layouts, sequences, transfers, views
from rgpu_client.torch.dispatch import Kernel
from rgpu_client.torch.outs import writing
from rgpu_client.torch.package import torch
from rgpu_client.torch.spec import Spec

_KEY = "PrivateUse1"
_COMPOSITES = ("CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
# Composites that PyTorch's own code serves: they end in other operators.
_LEFT = frozenset({
    "aten::copy_", "aten::_to_copy", "aten::empty_like", "aten::new_empty",
    "aten::new_empty_strided", "aten::detach", "aten::detach_", "aten::lift", "aten::lift_fresh",
    "aten::is_pinned", "aten::_pin_memory", "aten::resize_as_", "aten::rename_", "aten::rename",
    "aten::_has_same_storage_numel", "aten::is_same_size",
    # Of a tensor that is not sparse they know the answer.
    "aten::sparse_dim", "aten::dense_dim", "aten::is_coalesced",
    # They return views and do not say so. As operations of the node they would return copies of
    # views that are conjugated or negated lazily.
    "aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes",
})  # fmt: skip
_LOCAL = ("as_strided", "view", "_reshape_alias", "unfold", "view_as_real", "view_as_complex")
_OWN: dict[str, Any] = {
    "aten::_copy_from": transfers.copy_from,
    "aten::_copy_from_and_resize": transfers.copy_from,
    "aten::_local_scalar_dense": transfers.read_number,
    "aten::as_strided_": views.as_strided_,
    "aten::resize_": views.resize_,
    "aten::set_": views.set_nothing,
    "aten::set_.source_Storage": views.set_storage,
    "aten::set_.source_Storage_storage_offset": views.set_storage_part,
    "aten::set_.source_Tensor": views.set_tensor,
    "aten::set_.source_Tensor_storage_offset": views.set_part,
    "aten::is_set_to": views.is_set_to,
    "aten::empty.memory_format": views.empty,
    "aten::empty_strided": views.empty_strided,
    "aten::_efficientzerotensor": views.zeros,
    "aten::_new_zeros_with_same_feature_meta": views.zeros_as,
    "aten::_pack_padded_sequence": sequences.pack,
}
# Their results' sizes depend on numbers with a fraction.
_BY_VALUE = frozenset({"aten::arange", "aten::range", "aten::linspace", "aten::logspace"})
# PyTorch lets the indices of a tensor of a GPU be tensors of the CPU.
_UPLOADS = frozenset({
    "aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_",
    "aten::_unsafe_index", "aten::_unsafe_index_put",
})  # fmt: skip
# The CPU build and the GPU's give results of other sizes, or meta tensors do.
_WAITS = frozenset({
    "aten::_embedding_bag", "aten::_embedding_bag_forward_only",
    "aten::multilabel_margin_loss_forward",
})  # fmt: skip

# Views that are conjugated or negated lazily have these keys. PyTorch's kernels for the keys make a
# copy of each such argument, and write the copy back where the operator's schema says that it
# changes the argument. These two change their second argument and do not say so, so the write would
# be lost; and every write through a lazy view ends in one of them. Their kernels here know lazy
# views.
_LAZY_KEYS = ("Conjugate", "Negative")
_WRITES_UNSAID = ("_copy_from", "_copy_from_and_resize")

# They keep what is registered.
_kept: list[Any] = []


def register() -> None:
    """Registers a kernel for every operator that does not end in others by itself."""
    fallback = torch.library.Library("_", "IMPL")
    fallback.fallback(_Fallback(), _KEY)
    own = torch.library.Library("aten", "IMPL")
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            kernel = _kernel(name)
            if kernel is not None:
                own.impl(name.removeprefix("aten::"), kernel, _KEY)
    for key in _LAZY_KEYS:
        for name in _WRITES_UNSAID:
            own.impl(name, torch.library.fallthrough_kernel, key)
    layouts.register(fallback, own)
    _kept.extend((fallback, own))


class _Fallback:
    """The kernel of operators that have none of their own."""

    def __init__(self) -> None:
        self._kernels: dict[Any, Any] = {}

    @property
    def __name__(self) -> str:
        return "rgpu"

    def __call__(self, operator: Any, *arguments: Any, **keywords: Any) -> Any:
        kernel = self._kernels.get(operator)
        if kernel is None:
            name = operator._schema.name
            overload = operator._schema.overload_name
            full = f"{name}.{overload}" if overload else name
            kernel = writing(operator) or Kernel(_spec(full, operator))
            self._kernels[operator] = kernel
        return kernel(*arguments, **keywords)


def _kernel(name: str) -> Any:
    """Returns the kernel that wins over a composite's; None if there is no composite."""
    if name in _OWN:
        return _OWN[name]
    operator = _operator(name)
    base = name.partition(".")[0]
    if base.removeprefix("aten::") in _LOCAL and name.partition(".")[2] in ("", "default"):
        return views.local(operator)
    if base in _LEFT or not any(_has(name, key) for key in _COMPOSITES):
        return None
    if _is_view(operator._schema) or torch.Tag.inplace_view in operator.tags:
        return None
    return writing(operator) or Kernel(_spec(name, operator))


def _spec(name: str, operator: Any) -> Spec:
    base = name.partition(".")[0]
    return Spec(name, operator, base not in _BY_VALUE, base in _UPLOADS, base in _WAITS)


def _is_view(schema: Any) -> bool:
    return any(one.alias_info is not None and not one.alias_info.is_write for one in schema.returns)


def _has(name: str, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, key))


def _operator(name: str) -> Any:
    packet, _, overload = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")
