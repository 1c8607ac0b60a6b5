"""`torch.accelerator`, `torch.Stream` and `torch.Event` for this device.

PyTorch's C++ would ask an allocator and a device guard of this device, which cannot be written in
Python. Operations of a session run in their order, so its streams are all the same one.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

from rgpu_client.torch import backend, cuda_names
from rgpu_client.torch.package import kind_of, torch
from rgpu_common.clock import MonotonicClock

_PlainStream, _PlainEvent = torch.Stream, torch.Event
_CLOCK = MonotonicClock()


class _Waiting:
    """What a program may wait for."""

    def synchronize(self) -> None:
        """Waits for the node. An operation that failed raises its error here."""
        _synchronize()

    def query(self) -> bool:
        """Waits for the node, and returns True."""
        _synchronize()
        return True


class RemoteStream(_Waiting, _PlainStream):  # type: ignore[misc,valid-type]
    """The operations of a session."""

    def record_event(self, event: Any = None) -> Any:
        """Returns an event that has been recorded."""
        made = torch.Event(device="rgpu") if event is None else event
        made.record(self)
        return made

    def wait_stream(self, stream: Any) -> None:
        """Operations of a session run in their order."""

    wait_event = wait_stream


class RemoteEvent(_Waiting, _PlainEvent):  # type: ignore[misc,valid-type]
    """A place among the operations. With `enable_timing` its record waits for the node."""

    def __init__(self, device: Any = None, enable_timing: bool = False, **_: Any) -> None:
        self._timed, self._at = enable_timing, 0.0

    def record(self, stream: Any = None) -> None:
        """Notes the time when the node has done everything before."""
        if self._timed:
            _synchronize()
            self._at = _CLOCK.now()

    def wait(self, stream: Any = None) -> None:
        """Operations of a session run in their order."""

    def elapsed_time(self, end_event: Any) -> float:
        """Returns the milliseconds between two events that were made with `enable_timing`."""
        if not self._timed or not end_event._timed:
            raise ValueError("the time between two events is known with enable_timing=True")
        return float(end_event._at - self._at) * 1000.0


class _Choosing(type):
    """Makes what a program calls `torch.Stream` and `torch.Event`."""

    plain: Any
    remote: Any

    def __call__(cls, device: Any = None, *arguments: Any, **keywords: Any) -> Any:
        named = torch.device(device) if isinstance(device, str | int) else device
        if named is None and not keywords.keys() & {"stream_id", "device_index"}:
            named = torch.device("rgpu")
        if named is None or kind_of(named) != "rgpu":
            return cls.plain(*(() if device is None else (device,)), *arguments, **keywords)
        backend.check_device(named)
        return cls.remote(torch.device("rgpu", 0), *arguments, **keywords)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.plain)

    def __subclasscheck__(cls, subclass: Any) -> bool:
        return issubclass(subclass, cls.plain)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls.plain, name)


class Stream(metaclass=_Choosing):
    """`torch.Stream`."""

    plain, remote = _PlainStream, RemoteStream


class Event(metaclass=_Choosing):
    """`torch.Event`."""

    plain, remote = _PlainEvent, RemoteEvent


def install() -> None:
    """Answers what `torch.accelerator` asks of C++."""
    torch.Stream, torch.Event = Stream, Event
    for name, answer in _ANSWERS.items():
        setattr(torch._C, f"_accelerator_{name}", answer)
    # `torch.compile` asks for the stream, and would trace a function that is written in Python.
    streams = itertools.repeat(RemoteStream(torch.device("rgpu", 0)))
    torch._C._accelerator_getStream = functools.partial(next, streams)


def rename(renaming: Any) -> None:
    """Has the functions here that take a device take `cuda` for it."""
    _Choosing.__call__ = renaming(_Choosing.__call__)  # type: ignore[method-assign]
    for module in (torch.accelerator, torch.accelerator.memory):
        module._get_device_index = renaming(module._get_device_index)


def _synchronize(index: int = 0) -> None:
    backend.check_device(index)
    if backend.is_initialized():
        backend.synchronize()


def _memory_info(index: int = 0) -> tuple[int, int]:
    backend.check_device(index)
    return backend.mem_get_info()


def _memory_stats(index: int = 0) -> dict[str, int]:
    backend.check_device(index)
    return cuda_names.memory_stats()


def _reset_peak(index: int = 0) -> None:
    backend.check_device(index)
    backend.reset_peak_memory_stats()


_ANSWERS: dict[str, Any] = {
    "synchronizeDevice": _synchronize,
    "isAllocatorInitialized": backend.is_initialized,
    "emptyCache": cuda_names.unchanged,
    "emptyHostCache": cuda_names.unchanged,
    "getDeviceStats": _memory_stats,
    "getMemoryInfo": _memory_info,
    "resetPeakStats": _reset_peak,
    "resetAccumulatedStats": cuda_names.unchanged,
    "setStream": cuda_names.unchanged,
}
