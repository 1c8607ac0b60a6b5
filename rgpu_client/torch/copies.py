"""Copying and saving tensors of this device.

PyTorch copies and saves storages, and those of this device have no memory here: a copy of one ends
the process. So a tensor is copied on the node, and is saved as its storage's elements.
"""

from __future__ import annotations

import copy
import functools
import weakref
from typing import Any

from rgpu_client.torch import storages, transfers
from rgpu_client.torch.package import torch

# What a saved storage is said to lie on, as `cuda:0` for a GPU.
_LOCATION = "rgpu:0"
# Before PyTorch's own taggers, the first of which has 10.
_PRIORITY = 5
_REFUSED = (
    "__deepcopy__",
    "__copy__",
    "__reduce__",
    "clone",
    "cpu",
    "tolist",
    "copy_",
    "share_memory_",
)


def install() -> None:
    """Makes `copy.deepcopy`, `torch.save`, `torch.load` and `pickle` know this device."""
    tensor = torch.Tensor
    tensor.__deepcopy__ = _deepcopy_or(tensor.__deepcopy__)
    tensor.__reduce_ex__ = _reduce_or(tensor.__reduce_ex__)
    for name in _REFUSED:
        original = getattr(torch.UntypedStorage, name, None)
        if original is not None:
            setattr(torch.UntypedStorage, name, _refused_or(original))
    torch.serialization.register_package(_PRIORITY, _location_of, _restored)
    torch._utils._rebuild_tensor_v2 = _rebuilt_or(torch._utils._rebuild_tensor_v2)


def _deepcopy_or(original: Any) -> Any:
    @functools.wraps(original)
    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if self.device.type != "rgpu" or not self.is_leaf:
            return original(self, memo)
        if id(self) not in memo:
            with torch.no_grad():
                memo[id(self)] = _copied(self, memo)
        return memo[id(self)]

    return deepcopy


def _copied(tensor: Any, memo: dict[int, Any]) -> Any:
    """Returns a copy. Tensors that share a storage have copies that share one."""
    storage = tensor.untyped_storage()
    key = (id(storage), tensor.dtype)
    whole = memo.get(key)  # type: ignore[call-overload]
    if whole is None:
        whole = memo[key] = _whole(tensor, tensor.dtype).clone()  # type: ignore[index]
        memo.setdefault(id(memo), []).append(storage)
    made = storages.seen(whole, tensor.shape, tensor.stride(), tensor.storage_offset())
    made = _with_bits(made, tensor)
    if type(tensor) is not torch.Tensor:
        made = made.as_subclass(type(tensor))
    made.__dict__ = copy.deepcopy(tensor.__dict__, memo)
    made.requires_grad = tensor.requires_grad
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    return made


def _whole(tensor: Any, dtype: Any) -> Any:
    """Returns the elements of a tensor's storage as one row."""
    count = storages.record_of(tensor).size // dtype.itemsize
    row = tensor.detach()
    if row.is_conj():
        row = row.conj()
    if row.is_neg():
        row = torch._neg_view(row)
    if dtype != row.dtype:
        # A view of another dtype must begin where the storage does.
        row = storages.seen(row, (storages.record_of(tensor).size // row.itemsize,), (1,), 0)
        row = row.view(dtype)
    return storages.seen(row, (count,), (1,), 0)


def _with_bits(made: Any, like: Any) -> Any:
    if like.is_conj():
        made = torch._conj(made)
    return torch._neg_view(made) if like.is_neg() else made


def _reduce_or(original: Any) -> Any:
    @functools.wraps(original)
    def reduce(self: Any, protocol: Any) -> Any:
        if self.device.type != "rgpu" or type(self) is not torch.Tensor:
            return original(self, protocol)
        with torch.no_grad():
            here = _brought(self)
        here.requires_grad_(self.requires_grad)
        here.__dict__.update(self.__dict__)
        return original(here, protocol)

    return reduce


# By the tensor's storage: the copy that is being saved, and the version of the elements in it.
# Tensors that share a storage are saved with one.
_saved: weakref.WeakKeyDictionary[Any, tuple[Any, int]] = weakref.WeakKeyDictionary()


def _brought(tensor: Any) -> Any:
    """Returns the tensor in the memory of this process; its storage says where it was."""
    source = tensor.untyped_storage()
    known, version = _saved.get(source, (lambda: None, -1))
    storage = known() if version == tensor._version else None
    if storage is None:
        row = transfers.read(_whole(tensor, tensor.dtype))
        storage = row.untyped_storage()
        storage._rgpu_location = _LOCATION
        _saved[source] = (weakref.ref(storage), tensor._version)
    made = torch.empty(0, dtype=tensor.dtype)
    made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return _with_bits(made, tensor)


def _location_of(storage: Any) -> str | None:
    return getattr(storage, "_rgpu_location", None)


def _restored(storage: Any, location: str) -> Any:
    """The elements have been read here; `_rebuild_tensor_v2` sends them."""
    if not location.startswith("rgpu"):
        return None
    storage._rgpu_location = _LOCATION
    return storage


def _rebuilt_or(original: Any) -> Any:
    @functools.wraps(original)
    def rebuild(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> Any:
        made = original(storage, offset, size, stride, *rest)
        source = made.untyped_storage()
        if getattr(source, "_rgpu_location", None) is None:
            return made
        with torch.no_grad():
            sent = getattr(source, "_rgpu_sent", None)
            if sent is None:
                row = torch.empty(0, dtype=torch.uint8)
                row.set_(source, 0, (source.nbytes(),), (1,))
                # The storage ends with the load, and its copy on the node lives on in tensors.
                sent = source._rgpu_sent = row.to("rgpu")
            there = storages.seen(sent.view(made.dtype), size, stride, offset)
            there = _with_bits(there, made)
        return there.detach().requires_grad_(made.requires_grad)

    return rebuild


def _refused_or(original: Any) -> Any:
    @functools.wraps(original)
    def refuse(self: Any, *arguments: Any, **keywords: Any) -> Any:
        others = [self, *[one for one in arguments if isinstance(one, torch.UntypedStorage)]]
        if any(one.device.type == "rgpu" for one in others):
            raise NotImplementedError(
                "a storage of the device rgpu has no memory here; copy or save its tensors instead"
            )
        return original(self, *arguments, **keywords)

    return refuse
