"""Tensors of this device on their way to another process of the program.

A queue, a pipe and the start of a process send a tensor as its storage, and PyTorch sends a storage
of the CPU as shared memory. Processes do not share a session, so a storage of this device travels
by its bytes: the other process has a copy in its own session. Tensors of one message that share a
storage share their copy too.
"""

from __future__ import annotations

import warnings
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

from rgpu_client.torch import storages, transfers, untyped
from rgpu_client.torch.package import torch
from rgpu_client.torch.patches import here_or, is_here

if TYPE_CHECKING:
    from collections.abc import Callable

_reductions = torch.multiprocessing.reductions
_warned: set[str] = set()


def install() -> None:
    """Makes `multiprocessing` know tensors of this device."""
    ForkingPickler.register(torch.UntypedStorage, here_or(_reductions.reduce_storage, _reduced))
    kinds = {torch.Tensor, torch.nn.Parameter, *torch._tensor_classes}
    for kind in kinds:
        ForkingPickler.register(kind, _tensor)
    torch.UntypedStorage.share_memory_ = here_or(torch.UntypedStorage.share_memory_, _share)


def _share(storage: Any) -> Any:
    """Notes that the program relies on shared memory."""
    storages.record_in(storage).shared = True
    return storage


def _tensor(tensor: Any) -> Any:
    """Reduces a tensor as PyTorch does one of the CPU. Lazy bits are not sent."""
    if not is_here(tensor) or (tensor.requires_grad and not tensor.is_leaf):
        return _reductions.reduce_tensor(tensor)
    if type(tensor) is torch.nn.Parameter and tensor.requires_grad:
        _warn()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    form = (tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.requires_grad)
    return _reductions.rebuild_tensor, (type(tensor), tensor._typed_storage(), form)


def _warn() -> None:
    """Says once that a model is copied: with CUDA the processes would train the same one."""
    if "parameter" not in _warned:
        _warned.add("parameter")
        warnings.warn(
            "parameters of the device rgpu reach another process as copies: what it learns is not "
            "seen here, so let it send its state_dict() back",
            stacklevel=2,
        )


def _reduced(storage: Any) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
    record = storages.record_in(storage)
    if record.shared:
        raise RuntimeError(
            "share_memory_() was called on a tensor of the device rgpu, but processes do not share "
            "memory of a GPU node: send the tensor without it, as a copy, and send changes back"
        )
    return rebuilt, (_bytes(storage),)


def _bytes(storage: Any) -> bytes:
    if not storage.nbytes():
        return b""
    return bytes(transfers.elements(transfers.read(untyped.whole(storage))))


def rebuilt(data: bytes) -> Any:
    """Returns a storage of this process's session with these bytes."""
    storage = torch.UntypedStorage(len(data), device="rgpu")
    if data:
        row = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        storage.copy_(row.untyped_storage())
    return storage
