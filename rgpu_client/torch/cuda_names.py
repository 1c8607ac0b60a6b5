"""Names of `torch.cuda` that programs use around their work, as the node's device answers them.

There is one device and one order of operations, so what chooses devices has nothing to do.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

from rgpu_client.torch import backend, generators
from rgpu_client.torch.package import torch
from rgpu_common.units import format_bytes

_KINDS = ("allocated_bytes", "active_bytes", "requested_bytes", "reserved_bytes")


class ChosenByTensor(backend.Chosen):
    """`torch.cuda.device_of(tensor)`."""

    def __init__(self, obj: Any) -> None:
        super().__init__(None)


class Autocast(torch.amp.autocast_mode.autocast):  # type: ignore[misc]
    """`torch.cuda.amp.autocast(enabled, dtype, cache_enabled)`, for this device."""

    def __init__(
        self, enabled: bool = True, dtype: Any = torch.float16, cache_enabled: bool = True
    ) -> None:
        super().__init__("rgpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def memory_stats(device: Any = None) -> dict[str, int]:
    """Returns the bytes of this session's tensors, now and at most, under PyTorch's names."""
    now, most = backend.memory_allocated(), backend.max_memory_allocated()
    found = {f"{kind}.all.current": now for kind in _KINDS}
    return {**found, **{f"{kind}.all.peak": most for kind in _KINDS}}


def memory_stats_as_nested_dict(device: Any = None) -> dict[str, Any]:
    """Returns what `memory_stats` returns, with a dictionary for each part of a name."""
    found: dict[str, Any] = {}
    for name, value in memory_stats().items():
        *parts, last = name.split(".")
        inner = found
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return found


def memory_snapshot(*_: Any, **__: Any) -> NoReturn:
    """PyTorch's own would end the process."""
    raise NotImplementedError(
        "a node does not tell of single blocks of memory: use torch.cuda.memory_stats()"
    )


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """Returns a line on the memory of the lease and of this session."""
    free, limit = backend.mem_get_info()
    used, most = backend.memory_allocated(), backend.max_memory_allocated()
    return (
        f"{backend.get_device_name()}: this session's tensors use {format_bytes(used)}, at most "
        f"{format_bytes(most)}; the lease of {format_bytes(limit)} has {format_bytes(free)} free"
    )


class Graph:
    """`torch.cuda.CUDAGraph`."""

    def __new__(cls, *_: Any, **__: Any) -> NoReturn:
        raise NotImplementedError(
            "CUDA graphs are not offered on the device rgpu: issue the operations one by one, no "
            "operation waits for the node either"
        )


def scatter(original: Any) -> Any:
    """Returns `torch.nn.parallel.comm.scatter`, by which DataParallel moves its input."""

    @functools.wraps(original)
    def scattered(tensor: Any, devices: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if devices is None or len(devices) != 1 or keywords.get("out") is not None:
            return original(tensor, devices, *arguments, **keywords)
        backend.check_device(devices[0])
        return (tensor.to("rgpu"),)

    return scattered


def seed() -> None:
    """Seeds the node's random numbers with a number of chance."""
    generators.default.seed(torch.Generator().seed())


def initial_seed() -> int:
    """Returns the seed of the node's random numbers."""
    return generators.default.initial_seed()


def is_current_stream_capturing() -> bool:
    """There are no CUDA graphs here."""
    return False


def unchanged(*_: Any, **__: Any) -> None:
    """Does nothing: the lease sets the limit, and operations are in one order."""


ANSWERS: dict[str, Any] = {
    "device": backend.Chosen,
    "device_of": ChosenByTensor,
    "memory_stats": memory_stats,
    "memory_stats_as_nested_dict": memory_stats_as_nested_dict,
    "memory_summary": memory_summary,
    "memory_snapshot": memory_snapshot,
    "get_per_process_memory_fraction": lambda device=None: 1.0,
    "reset_max_memory_cached": backend.reset_peak_memory_stats,
    "CUDAGraph": Graph,
    "seed": seed,
    "seed_all": seed,
    "initial_seed": initial_seed,
    "is_current_stream_capturing": is_current_stream_capturing,
    "set_per_process_memory_fraction": unchanged,
    "reset_accumulated_memory_stats": unchanged,
}
