"""Copies between the memory of this process and the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rgpu_client.torch.dispatch import Kernel
from rgpu_client.torch.errors import other_device
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.session import session
from rgpu_client.torch.spec import Spec
from rgpu_client.torch.storages import adopt, extent, id_of, name_of, record_of, view_of
from rgpu_common.arrays import memory

if TYPE_CHECKING:
    from collections.abc import Sequence

_on_node = Kernel(Spec("aten::copy_", torch.ops.aten.copy_.default))


def copy_from(source: Any, target: Any, non_blocking: bool = False) -> Any:
    """Copies elements into `target`; either tensor, or both, are of this device. A number is a
    source too: PyTorch makes one of a program's number.
    """
    if not isinstance(source, torch.Tensor):
        return target.fill_(source)
    here, there = kind_of(source.device), kind_of(target.device)
    if here == there:
        _on_node(target, source, non_blocking)
    elif here == "cpu":
        _upload(source, target)
    elif there == "cpu":
        _download(source, target)
    else:
        raise other_device(source.device if here != "rgpu" else target.device)
    return target


def read_number(tensor: Any) -> Any:
    """Returns the only element of a tensor, as `aten::_local_scalar_dense` does."""
    return read(tensor.reshape(())).item()


def read(tensor: Any) -> Any:
    """Waits for a tensor and returns it, contiguous, in the memory of this process."""
    got = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    _read_into(tensor, got)
    return got


def _upload(source: Any, target: Any) -> None:
    """Uploads in the order of `source`'s own memory where its elements lie dense."""
    source = source.detach().to(target.dtype) if source.dtype != target.dtype else source.detach()
    record, view = record_of(target), view_of(target)
    if source.shape == target.shape and record.pending == view and _dense(source, view):
        record.pending = None
        record.issuer.put(record.base, name_of(target.dtype), [source.numel()], elements(source))
        return
    whole = source.resolve_conj().resolve_neg().contiguous()
    issuer = session.current()
    sent = issuer.new_id()
    issuer.put(sent, name_of(whole.dtype), list(whole.shape), elements(whole))
    shape = torch.Size(whole.shape)
    _on_node(target, adopt(issuer, sent, (whole.dtype, shape, whole.stride(), 0, 0)), False)


def _dense(source: Any, view: Any) -> bool:
    """True if the memory of `source` can become the storage of a tensor with this view."""
    _, shape, stride, offset, bits = view
    same = source.stride() == stride and not source.is_conj() and not source.is_neg()
    return same and offset == 0 and bits == 0 and extent(shape, stride) == source.numel()


def _download(source: Any, target: Any) -> None:
    same = source.dtype == target.dtype and source.shape == target.shape
    plain = same and target.is_contiguous() and not target.is_conj() and not target.is_neg()
    if plain:
        _read_into(source, target)
    else:
        target.copy_(read(source))


def _read_into(source: Any, target: Any) -> None:
    def make(dtype: str, shape: Sequence[int]) -> memoryview:
        if dtype != name_of(target.dtype) or tuple(shape) != tuple(target.shape):
            raise RuntimeError(f"the node sent {list(shape)} of {dtype} where others were expected")
        size = target.numel() * target.element_size()
        return memory.room_of(target.data_ptr(), size, target)

    record_of(source).issuer.read(id_of(source), make)


def elements(tensor: Any) -> memoryview:
    """Returns the memory of a contiguous tensor of the CPU."""
    size = tensor.numel() * tensor.element_size()
    return memory.view_of(tensor.data_ptr(), size, tensor)
