"""Lets a program that says `cuda` run on this device: `rgpu run --torch`.

PyTorch does not let another device take the name `cuda`. So this module translates: where a program
names the device `cuda`, PyTorch gets `rgpu`, and where a program asks about CUDA, the node answers.
A tensor still says `rgpu` when it is asked for its device.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from rgpu_client.torch import backend, cuda_names
from rgpu_client.torch.package import torch
from rgpu_client.torch.session import session
from rgpu_client.torch.setup import device as _device
from rgpu_common.clock import MonotonicClock

# Methods and functions that are not seen by a mode for functions.
_CLASSES = (
    (torch.nn.Module, ("to", "to_empty")),
    (torch.nn.utils.rnn.PackedSequence, ("to",)),
)
_CLOCK = MonotonicClock()
_kept: list[Any] = []


class _Renaming(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
    """Translates the device among the arguments of PyTorch's functions."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        if keywords:
            keywords = {name: _renamed(value) for name, value in keywords.items()}
        if any(isinstance(one, str | torch.device) for one in arguments):
            arguments = tuple([_renamed(one) for one in arguments])
        return function(*arguments, **(keywords or {}))


def install() -> None:
    """Makes programs that say `cuda` run on this device."""
    if _kept:
        return
    mode = _Renaming()
    mode.__enter__()
    _kept.append(mode)
    threading.Thread.start = _starting(threading.Thread.start)  # type: ignore[method-assign]
    for owner, names in _CLASSES:
        for name in names:
            setattr(owner, name, _renaming(getattr(owner, name)))
    _rename_methods()
    _rename_module()
    torch.autocast = _autocast(torch.autocast)
    torch.amp.autocast = torch.autocast
    torch.amp.GradScaler = torch.GradScaler = _scaler(torch.amp.GradScaler)
    torch.load = _loading(torch.load)
    for name in ("set_default_device", "get_autocast_dtype", "is_autocast_enabled"):
        setattr(torch, name, _renaming(getattr(torch, name)))
    generator = type(torch.Generator)
    generator.__call__ = _renaming(generator.__call__)


def _starting(start: Any) -> Any:
    """A thread that the program starts translates too: PyTorch keeps modes for each thread."""

    @functools.wraps(start)
    def starting(self: threading.Thread) -> None:
        run = self.run

        def translated() -> None:
            del self.run
            with _Renaming():
                run()

        self.run = translated  # type: ignore[method-assign]
        start(self)

    return starting


def _renamed(value: Any) -> Any:
    if isinstance(value, str):
        if value == "cuda" or value.startswith("cuda:"):
            return "rgpu" + value.removeprefix("cuda")
    elif isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("rgpu", value.index) if value.index is not None else _device
    return value


def _renaming(function: Any) -> Any:
    @functools.wraps(function)
    def renaming(*arguments: Any, **keywords: Any) -> Any:
        named = {name: _renamed(value) for name, value in keywords.items()}
        return function(*[_renamed(one) for one in arguments], **named)

    return renaming


def _rename_methods() -> None:
    tensor, module = torch.Tensor, torch.nn.Module
    tensor.cuda = _moved
    tensor.record_stream = cuda_names.unchanged
    tensor.is_cuda = property(lambda self: self.device.type == "rgpu")
    module.cuda = _moved
    torch.nn.utils.rnn.PackedSequence.cuda = _moved


def _moved(self: Any, device: Any = None, *_: Any, **__: Any) -> Any:
    """The method `cuda` of a tensor, a module and a packed sequence."""
    backend.check_device(_renamed(device))
    return self.to(_device)


def _rename_module() -> None:
    """Gives `torch.cuda` the node's answers."""
    cuda = torch.cuda
    for name, answer in {**_ANSWERS, **cuda_names.ANSWERS}.items():
        setattr(cuda, name, answer)
    for name in ("memory_stats", "memory_summary"):
        setattr(cuda.memory, name, cuda_names.ANSWERS[name])
    cuda.memory.mem_get_info = _ANSWERS["mem_get_info"]
    cuda.random.manual_seed = cuda.random.manual_seed_all = backend.manual_seed
    cuda.amp.autocast = cuda.amp.autocast_mode.autocast = cuda_names.Autocast
    cuda.amp.GradScaler = functools.partial(torch.amp.GradScaler, "rgpu")
    torch.version.cuda = torch.version.cuda or "13.0"


def _autocast(original: Any) -> Any:
    class Autocast(original):  # type: ignore[misc]
        """`torch.autocast`, which takes `cuda` for this device."""

        def __init__(self, device_type: str, *arguments: Any, **keywords: Any) -> None:
            super().__init__(_renamed(device_type), *arguments, **keywords)

    Autocast.__name__ = Autocast.__qualname__ = "autocast"
    return Autocast


def _scaler(original: Any) -> Any:
    class GradScaler(original):  # type: ignore[misc]
        """`torch.amp.GradScaler`, which takes `cuda` for this device."""

        def __init__(self, device: str = "cuda", *arguments: Any, **keywords: Any) -> None:
            super().__init__(_renamed(device), *arguments, **keywords)

    return GradScaler


def _loading(original: Any) -> Any:
    """A file that was saved from a GPU is loaded to this device."""

    @functools.wraps(original)
    def load(f: Any, map_location: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if map_location is None:
            map_location = _located
        elif isinstance(map_location, dict):
            map_location = {_renamed(a): _renamed(b) for a, b in map_location.items()}
        return original(f, _renamed(map_location), *arguments, **keywords)

    return load


def _located(storage: Any, location: str) -> Any:
    # Wherever it was saved: there is one device.
    here = str(_device) if location.startswith("cuda") else location
    return torch.serialization.default_restore_location(storage, here)


class _Event:
    """`torch.cuda.Event`: what it measures is the time until the node has done the work."""

    def __init__(self, enable_timing: bool = False, **_: Any) -> None:
        self._at = 0.0

    def record(self, stream: Any = None) -> None:
        """Waits for the node, and notes the time."""
        backend.synchronize()
        self._at = _CLOCK.now()

    def synchronize(self) -> None:
        """Everything before has been done when the event was recorded."""

    def query(self) -> bool:
        """Everything before has been done when the event was recorded."""
        return True

    def elapsed_time(self, end: _Event) -> float:
        """Returns the milliseconds between two events."""
        return (end._at - self._at) * 1000.0


class _Stream:
    """`torch.cuda.Stream`: operations of a session run in their order."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.device = _device

    def synchronize(self) -> None:
        """Waits for the node."""
        backend.synchronize()

    def wait_stream(self, stream: Any) -> None:
        """Operations of a session run in their order."""

    wait_event = wait_stream

    def record_event(self, event: Any = None) -> Any:
        """Returns an event that has been recorded."""
        made = event or _Event()
        made.record()
        return made

    def query(self) -> bool:
        """Returns True."""
        return True

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _supports(*_: Any, **__: Any) -> bool:
    return True


def is_available() -> bool:
    """`torch.cuda.is_available`. Where there is no session, a warning says why, once: the program
    would compute on the CPU without a word.
    """
    return session.available(warning=True)


def _nothing(*_: Any, **__: Any) -> None:
    return None


_ANSWERS: dict[str, Any] = {
    "is_available": is_available,
    "is_initialized": backend.is_initialized,
    "_is_in_bad_fork": backend._is_in_bad_fork,
    "init": _nothing,
    "_lazy_init": _nothing,
    "device_count": backend.device_count,
    "current_device": backend.current_device,
    "set_device": lambda device: backend.set_device(_renamed(device)),
    "synchronize": lambda device=None: backend.synchronize(),
    "get_device_name": backend.get_device_name,
    "get_device_capability": backend.get_device_capability,
    "get_device_properties": backend.get_device_properties,
    "mem_get_info": backend.mem_get_info,
    "memory_allocated": backend.memory_allocated,
    "memory_reserved": backend.memory_allocated,
    "max_memory_allocated": backend.max_memory_allocated,
    "max_memory_reserved": backend.max_memory_allocated,
    "reset_peak_memory_stats": backend.reset_peak_memory_stats,
    "reset_max_memory_allocated": backend.reset_peak_memory_stats,
    "empty_cache": _nothing,
    "ipc_collect": _nothing,
    "manual_seed": backend.manual_seed,
    "manual_seed_all": backend.manual_seed_all,
    "get_rng_state": lambda device=None: backend.get_rng_state(),
    "set_rng_state": lambda state, device=None: backend.set_rng_state(state),
    "get_rng_state_all": lambda: [backend.get_rng_state()],
    "set_rng_state_all": lambda states: backend.set_rng_state(states[0]),
    "is_bf16_supported": _supports,
    "Event": _Event,
    "Stream": _Stream,
    "stream": lambda stream=None: stream or _Stream(),
    "current_stream": _Stream,
    "default_stream": _Stream,
}
