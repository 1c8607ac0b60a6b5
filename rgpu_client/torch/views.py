"""Views and changes of sizes and strides, which need no word to the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_client.torch import storages
from rgpu_client.torch.errors import check_ordinal
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.session import session

if TYPE_CHECKING:
    from collections.abc import Mapping

_META = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_size_in_cpp = torch._C.StorageBase.nbytes


def local(operator: Any) -> Any:
    """Returns a kernel for a view: PyTorch's kernel for meta tensors, which share the storage."""
    redispatch = operator.redispatch

    def kernel(*arguments: Any, **keywords: Any) -> Any:
        return redispatch(_META, *arguments, **keywords)

    return kernel


def as_strided_(tensor: Any, size: Any, stride: Any, offset: int | None = None) -> Any:
    """See `torch.Tensor.as_strided_`."""
    chosen = tensor.storage_offset() if offset is None else offset
    tensor.data = storages.seen(tensor, size, stride, chosen)
    return tensor


def resize_(tensor: Any, size: Any, memory_format: Any = None) -> Any:
    """See `torch.Tensor.resize_`."""
    if list(tensor.shape) == list(size):
        return tensor
    like = torch.empty(size, dtype=tensor.dtype, device="meta")
    if memory_format not in (None, torch.preserve_format):
        like = like.contiguous(memory_format=memory_format)
    stride, offset = like.stride(), tensor.storage_offset()
    needed = (offset + storages.extent(like.shape, stride)) * tensor.dtype.itemsize
    grow(storages.record_of(tensor), needed)
    tensor.data = storages.seen(tensor, like.shape, stride, offset)
    return tensor


def grow(record: storages.Record, size: int) -> None:
    """Makes a storage at least `size` bytes long."""
    if size > record.size:
        record.resize(size)


def set_tensor(tensor: Any, source: Any) -> Any:
    """See `torch.Tensor.set_`."""
    tensor.data = source.detach()
    return tensor


def set_part(tensor: Any, source: Any, offset: int, size: Any, stride: Any = ()) -> Any:
    """See `torch.Tensor.set_`."""
    if not stride:
        stride = torch.empty(size, device="meta").stride()
    grow(storages.record_of(source), (offset + storages.extent(size, stride)) * source.itemsize)
    tensor.data = storages.seen(source, size, stride, offset)
    return tensor


def set_storage(tensor: Any, storage: Any) -> Any:
    """See `torch.Tensor.set_`."""
    _check_here(storage)
    count = storages.record_in(storage).size // tensor.itemsize
    tensor.data = storages.over(storage, tensor.dtype, (count,), (1,), 0)
    return tensor


def set_storage_part(tensor: Any, storage: Any, offset: int, size: Any, stride: Any = ()) -> Any:
    """See `torch.Tensor.set_`.

    Raises:
        RuntimeError: the storage is of another device.
        NotImplementedError: PyTorch's C++ wants all bytes of a storage whose size it does not know.
    """
    _check_here(storage)
    record = storages.record_in(storage)
    if not stride:
        stride = torch.empty(size, device="meta").stride()
    if record.size and tuple(size) == (0,) and not _size_in_cpp(storage):
        # `torch.jit.save` asks so, and would write a file without elements.
        raise NotImplementedError(
            "a tensor of the device rgpu cannot be written by PyTorch's C++: save the state_dict() "
            "of the module, or its copy on the CPU"
        )
    grow(record, (offset + storages.extent(size, stride)) * tensor.itemsize)
    tensor.data = storages.over(storage, tensor.dtype, size, stride, offset)
    return tensor


def set_nothing(tensor: Any) -> Any:
    """See `torch.Tensor.set_`."""
    tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return tensor


def is_set_to(tensor: Any, other: Any) -> bool:
    """See `torch.Tensor.is_set_to`."""
    same = storages.view_of(tensor) == storages.view_of(other)
    return same and tensor.untyped_storage() is other.untyped_storage()


def empty(size: Any, **options: Any) -> Any:
    """See `torch.empty`. The node makes the tensor when it is first used."""
    memory_format = options.get("memory_format")
    _check(options)
    if memory_format in (None, torch.contiguous_format, torch.preserve_format):
        like = torch.empty(size, dtype=options.get("dtype"), device="meta")
    else:
        like = torch.empty(
            size, dtype=options.get("dtype"), device="meta", memory_format=memory_format
        )
    return _pending(like)


def empty_strided(size: Any, stride: Any, **options: Any) -> Any:
    """See `torch.empty_strided`."""
    _check(options)
    return _pending(torch.empty_strided(size, stride, dtype=options.get("dtype"), device="meta"))


def zeros(size: Any, **options: Any) -> Any:
    """Returns zeros. PyTorch's autograd would have them without a storage."""
    return torch.zeros(size, dtype=options.get("dtype"), device=options.get("device"))


def zeros_as(tensor: Any, other: Any, *, self_num_batch_dims: int = 0) -> Any:
    """Returns zeros of the dtype of `tensor` that lie in their storage as `other` does, once for
    each of the first dimensions of `tensor`: a forward gradient before it is written. PyTorch's own
    code asks C++ for the size of the storage.
    """
    batch = tuple(tensor.shape[:self_num_batch_dims])
    count = storages.record_of(other).size // other.itemsize
    whole = torch.zeros((*batch, count), dtype=tensor.dtype, device=tensor.device)
    stride = (*whole.stride()[:-1], *other.stride())
    return whole.as_strided((*batch, *other.shape), stride, other.storage_offset())


def _check_here(storage: Any) -> None:
    if kind_of(storage.device) != "rgpu":
        raise RuntimeError(
            'Attempted to set the storage of a tensor on device "rgpu:0" to a storage on different '
            f'device "{storage.device}". This is no longer allowed; the devices must match.'
        )


def _check(options: Mapping[str, Any]) -> None:
    device = options.get("device")
    if device is not None:
        check_ordinal(device.index)


def _pending(like: Any) -> Any:
    view = (like.dtype, like.shape, like.stride(), 0, 0)
    return storages.form_of(view).pending(session.current())
