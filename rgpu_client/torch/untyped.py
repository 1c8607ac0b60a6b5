"""`torch.UntypedStorage` of this device, for PyTorch itself and for programs.

PyTorch copies, saves and sends tensors by their storages, and libraries compare storages to find
weights that are shared. A storage of this device has its bytes on the node. So what PyTorch's C++
would answer from memory is answered here: from the storage's record, or by a tensor of its bytes.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from rgpu_client.torch import storages
from rgpu_client.torch.errors import check_ordinal
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.patches import here_or

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REFUSED = "a storage of the device rgpu has its bytes on a GPU node, so {}: use {}"


def install() -> None:
    """Makes storages of this device answer as those of a GPU do."""
    storage = torch.UntypedStorage
    storage.__new__ = staticmethod(_made_or(storage.__new__))
    storage.copy_ = _copied_or(storage.copy_)
    for name, answer in _ANSWERS.items():
        setattr(storage, name, here_or(getattr(storage, name), answer))
    for name in ("data_ptr", "const_data_ptr"):
        setattr(torch.Tensor, name, _pointer_or(getattr(torch.Tensor, name)))


def whole(storage: Any) -> Any:
    """Returns all bytes of a storage as a tensor."""
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _made_or(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(cls: Any, *arguments: Any, device: Any = None, **keywords: Any) -> Any:
        if device is None:
            return original(cls, *arguments, **keywords)
        chosen = torch.device(device)
        if kind_of(chosen) != "rgpu":
            return original(cls, *arguments, device=device, **keywords)
        check_ordinal(chosen.index)
        return _made(*arguments)

    return make


def _made(given: Any = 0, /) -> Any:
    """Returns a storage of so many bytes, or of these."""
    if hasattr(given, "__index__"):
        made = torch.empty(int(given), dtype=torch.uint8, device="rgpu")
    else:
        made = torch.tensor(list(given), dtype=torch.uint8, device="rgpu")
    storage = made.untyped_storage()
    storages.told_size(storage)
    return storage


def _copied_or(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def copy(self: Any, source: Any, non_blocking: bool = False) -> Any:
        if "rgpu" not in (kind_of(self.device), kind_of(source.device)):
            return original(self, source, non_blocking)
        if self.nbytes() != source.nbytes():
            raise RuntimeError(
                f"size does not match, self was {self.nbytes()} bytes but src was "
                f"{source.nbytes()} bytes"
            )
        if self.nbytes():
            whole(self).copy_(whole(source))
        return self

    return copy


def _pointer_or(original: Any) -> Callable[[Any], int]:
    @functools.wraps(original)
    def data_ptr(self: Any) -> int:
        here: int = original(self)
        if kind_of(self.device) != "rgpu":
            return here
        record = getattr(self.untyped_storage(), "_rgpu", None)
        if record is None or not self.numel():
            return 0
        place: int = record.address() + self.storage_offset() * self.element_size()
        return place

    return data_ptr


def _pointer(self: Any) -> int:
    return storages.record_in(self).address()


def _size(self: Any) -> int:
    return storages.record_in(self).size


def _resize(self: Any, size: int) -> Any:
    storages.record_in(self).resize(int(size))
    storages.told_size(self)
    return self


def _item(self: Any, at: Any) -> Any:
    if isinstance(at, slice):
        raise NotImplementedError(
            _REFUSED.format("a part of it is no storage", "a slice of a tensor, or storage.cpu()")
        )
    size = self.nbytes()
    if not -size <= at < size:
        raise IndexError(f"index {at} out of range for storage of size {size}")
    return whole(self)[at].item()


def _set_item(self: Any, at: Any, value: Any) -> None:
    whole(self)[at] = value


def _delete_item(self: Any, at: Any) -> None:
    raise TypeError("the elements of a storage cannot be deleted: use resize_")


def _fill(self: Any, value: Any) -> Any:
    whole(self).fill_(value)
    return self


def _list(self: Any) -> list[int]:
    return list(whole(self).tolist())


def _iterate(self: Any) -> Iterator[int]:
    return iter(_list(self))


def _text(self: Any) -> str:
    """PyTorch's own text asks the node for each byte."""
    data = "\n ".join(map(str, _list(self)))
    return f" {data}\n[{torch.typename(self)}(device={self.device}) of size {len(self)}]"


def _new(self: Any) -> Any:
    return torch.UntypedStorage(device=self.device)


# PyTorch's C++ does not count the arguments of these two.
def _write_file(self: Any, file: Any, real: bool, sized: bool, itemsize: int) -> Any:
    return self.cpu()._write_file(file, real, sized, itemsize)


def _set_from_file(self: Any, file: Any, offset: Any, real: bool, itemsize: int) -> Any:
    here = self.cpu()
    here._set_from_file(file, offset, real, itemsize)
    return self.copy_(here)


def _swap(self: Any, other: Any) -> None:
    if other.device != self.device:
        raise RuntimeError(
            f"_swap_data_ptr_: storages must be on the same device, got {self.device} and "
            f"{other.device}"
        )
    self._rgpu, other._rgpu = storages.record_in(other), storages.record_in(self)


def _no_swapping(self: Any, *_: Any) -> None:
    raise NotImplementedError(_REFUSED.format("they are not swapped", "storage.cpu()"))


def _no_other(self: Any, *_: Any) -> None:
    raise NotImplementedError(_REFUSED.format("it cannot become another one", "tensor.set_"))


# What PyTorch's own methods of storages end in, by name.
_ANSWERS: dict[str, Callable[..., Any]] = {
    "data_ptr": _pointer,
    "nbytes": _size,
    "__len__": _size,
    "resize_": _resize,
    "__getitem__": _item,
    "__setitem__": _set_item,
    "__delitem__": _delete_item,
    "__iter__": _iterate,
    "__repr__": _text,
    "__str__": _text,
    "tolist": _list,
    "fill_": _fill,
    "new": _new,
    "_write_file": _write_file,
    "_set_from_file": _set_from_file,
    "_swap_data_ptr_": _swap,
    "_byteswap": _no_swapping,
    "_set_cdata": _no_other,
}
