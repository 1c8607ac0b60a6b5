"""The module `torch.rgpu`, and what PyTorch asks of a device's backend."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any

from rgpu_client.torch import backward, generators
from rgpu_client.torch.errors import check_ordinal
from rgpu_client.torch.package import torch
from rgpu_client.torch.session import session

_ONE = 1
_MIB = 1 << 20
_raise_pending = backward.raise_pending


@dataclass(frozen=True)
class Properties:
    """A device, with PyTorch's names. total_memory: bytes."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    warp_size: int = 32

    def __repr__(self) -> str:
        return (
            f"_RgpuDeviceProperties(name={self.name!r}, major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory // _MIB}MB, "
            f"multi_processor_count={self.multi_processor_count})"
        )


class Hook(torch._C._acc.PrivateUse1Hooks):  # type: ignore[misc]
    """What PyTorch's C++ asks."""

    def is_available(self) -> bool:
        return True

    def has_primary_context(self, device_index: int) -> bool:
        return True

    def is_built(self) -> bool:
        return True


class Guard(torch._C._acc.DeviceGuard):  # type: ignore[misc]
    """There is one device. PyTorch calls `type_` very often."""

    _TYPE = torch._C._autograd.DeviceType.PrivateUse1

    def type_(self) -> Any:
        try:
            _raise_pending(-1)
        except BaseException as error:
            backward.take(error)
        return self._TYPE


def module() -> types.ModuleType:
    """Returns the module that becomes `torch.rgpu`."""
    made = types.ModuleType("torch.rgpu", "The device of `rgpu_client.torch`.")
    for function in _FUNCTIONS:
        setattr(made, function.__name__, function)
    made.device = Chosen  # type: ignore[attr-defined]
    return made


def is_initialized() -> bool:
    """True while the process has a session."""
    return session.issuer is not None and not session.issuer.forked


def is_available() -> bool:
    """True if the process has a session, or could open one now. PyTorch and its libraries ask for
    every device that they know, so this says nothing where there is none.
    """
    return session.available(warning=False)


def device_count() -> int:
    """There is one device."""
    return _ONE


def current_device() -> int:
    """There is one device."""
    return 0


def check_device(device: Any) -> None:
    """Takes the only device, as a number, a name or a `torch.device`. None: whichever it is.

    Raises:
        RuntimeError: there is no device of this number.
    """
    known = device is None or isinstance(device, int)
    check_ordinal(device if known else torch.device(device).index)


def set_device(device: Any) -> None:
    """Chooses the only device."""
    check_device(device)


class Chosen:
    """`torch.rgpu.device(device)`: takes the only device. Negative numbers and None choose none."""

    def __init__(self, device: Any) -> None:
        if not (isinstance(device, int) and device < 0):
            check_device(device)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def synchronize(device: Any = None) -> None:
    """Waits until the node has done everything. An operation that failed raises its error here."""
    session.current().sync()


def manual_seed(seed: int) -> None:
    """Seeds the device's random numbers."""
    manual_seed_all(seed)


def manual_seed_all(seed: int) -> None:
    """Seeds the device's random numbers; `torch.manual_seed` calls it."""
    generators.default.seed(int(seed))


def get_rng_state(device: Any = "rgpu") -> Any:
    """Returns the state of the device's random numbers, in the memory of the CPU."""
    return generators.get_state()


def set_rng_state(new_state: Any, device: Any = "rgpu") -> None:
    """Sets the state of the device's random numbers."""
    generators.default.set_state(new_state)


def _is_in_bad_fork() -> bool:
    """True in a child that was forked after the session was opened, which does not have it."""
    return session.issuer is not None and session.issuer.forked


def get_amp_supported_dtype() -> list[Any]:
    """The dtypes of `torch.autocast("rgpu")`."""
    return [torch.float16, torch.bfloat16]


def mem_get_info(device: Any = None) -> tuple[int, int]:
    """Returns the free bytes and all bytes of the lease."""
    used, total, _ = session.current().ask("memory")
    return max(0, total - used), total


def memory_allocated(device: Any = None) -> int:
    """Returns the bytes that this session's tensors use."""
    return int(session.current().ask("memory")[0])


def max_memory_allocated(device: Any = None) -> int:
    """Returns the most bytes that this session's tensors have used."""
    return int(session.current().ask("memory")[2])


def reset_peak_memory_stats(device: Any = None) -> None:
    """Counts the most bytes anew."""
    session.current().ask("memory", "reset")


def empty_cache() -> None:
    """There is no cache on this side."""


def get_device_name(device: Any = None) -> str:
    """Returns the name of the device on the node."""
    return get_device_properties().name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """Returns the compute capability of the device on the node, as (8, 0)."""
    told = get_device_properties()
    return told.major, told.minor


def get_device_properties(device: Any = None) -> Properties:
    """Returns what the node tells of its device. The memory is that of the lease."""
    name, major, minor, processors = session.current().ask("device")
    return Properties(str(name), int(major), int(minor), mem_get_info()[1], int(processors))


_FUNCTIONS = (
    is_initialized, is_available, device_count, current_device, set_device, synchronize,
    manual_seed, manual_seed_all, get_rng_state, set_rng_state, _is_in_bad_fork,
    get_amp_supported_dtype, mem_get_info, memory_allocated, max_memory_allocated,
    reset_peak_memory_stats, empty_cache, get_device_name, get_device_capability,
    get_device_properties,
)  # fmt: skip
