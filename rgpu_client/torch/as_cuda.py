"""Lets a program that says `cuda` run on this device: `rgpu run --torch`.

PyTorch does not let another device take the name `cuda`. So this module translates: where a program
names the device `cuda`, PyTorch gets `rgpu`, and where a program asks about CUDA, the node answers.
`tensor.device` is still `rgpu:0`, and its `type` says `cuda`.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import threading
from typing import Any

from rgpu_client.torch import accelerator, backend, cuda_names, script_modules, scripts
from rgpu_client.torch.package import kind_of, torch
from rgpu_client.torch.session import session
from rgpu_client.torch.setup import device as _device

# Methods and functions that are not seen by a mode for functions.
_CLASSES = (
    (torch.nn.Module, ("to", "to_empty")),
    (torch.nn.utils.rnn.PackedSequence, ("to",)),
    (torch.UntypedStorage, ("to",)),
    (torch.nested, ("nested_tensor", "as_nested_tensor")),
)
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
    _rename_types()
    scripts.install()
    script_modules.devices.add(b"cuda")
    _rename_autocast()
    torch.amp.GradScaler = torch.GradScaler = _scaler(torch.amp.GradScaler)
    torch.load = _loading(torch.load)
    torch.set_default_device = _renaming(torch.set_default_device)
    generator = type(torch.Generator)
    generator.__call__ = _renaming(generator.__call__)
    accelerator.rename(_renaming)


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
        return scripts.renamed(value)
    if isinstance(value, torch.device) and kind_of(value) == "cuda":
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
    tensor.is_cuda = property(lambda self: kind_of(self.device) == "rgpu")
    tensor.type = _typed(tensor.type)
    module.cuda = _moved
    torch.nn.utils.rnn.PackedSequence.cuda = _moved
    torch.UntypedStorage.__new__ = staticmethod(_renaming(torch.UntypedStorage.__new__))


def _typed(original: Any) -> Any:
    """A tensor of this device is a `torch.cuda.FloatTensor`."""

    @functools.wraps(original)
    def typed(self: Any, dtype: Any = None, *arguments: Any, **keywords: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.rgpu.")
        found = original(self, dtype, *arguments, **keywords)
        return found.replace("torch.rgpu.", "torch.cuda.") if isinstance(found, str) else found

    return typed


def _rename_types() -> None:
    """Has `device.type` say `cuda` for this device, as programs compare it.

    `torch.device` is a type of C, whose attributes Python does not change. The dictionary of its
    attributes is changed instead, and Python told so. C++ does not read it, so PyTorch goes on to
    know the device as `rgpu`.
    """
    attributes = gc.get_referents(torch.device.__dict__)[0]
    attributes["type"] = property(_type_of)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(torch.device))
    # It asks for the type of the device, and would load cuDNN.
    torch.backends.cudnn.is_acceptable = scripts.stands_for(
        lambda tensor: False, "aten::cudnn_is_acceptable"
    )


def _type_of(device: Any) -> str:
    kind = kind_of(device)
    return "cuda" if kind == "rgpu" else kind


def _rename_autocast() -> None:
    """Autocast of CUDA is that of this device. PyTorch's functions without a device mean CUDA's."""
    # The class stays, because scripts are compiled from its text.
    torch.autocast.__init__ = _renaming(torch.autocast.__init__)
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    set_enabled, set_dtype = torch.set_autocast_enabled, torch.set_autocast_dtype
    torch.is_autocast_enabled = scripts.stands_for(
        lambda device_type="cuda": enabled(_renamed(device_type)), "aten::is_autocast_enabled"
    )
    torch.get_autocast_dtype = scripts.stands_for(_renaming(dtype), "aten::get_autocast_dtype")
    torch.set_autocast_dtype = _renaming(set_dtype)
    torch.get_autocast_gpu_dtype = functools.partial(dtype, "rgpu")
    torch.set_autocast_gpu_dtype = functools.partial(set_dtype, "rgpu")

    def enable(*given: Any, **named: Any) -> None:
        values = [_renamed(one) for one in (*given, *named.values())]
        set_enabled(*(values if len(values) > 1 else ["rgpu", *values]))

    torch.set_autocast_enabled = enable


def _moved(self: Any, device: Any = None, *_: Any, **__: Any) -> Any:
    """The method `cuda` of a tensor, a module and a packed sequence."""
    backend.check_device(_renamed(device))
    return self.to(_device)


def _rename_module() -> None:
    """Gives `torch.cuda` the node's answers."""
    cuda = torch.cuda
    for name, answer in {**_ANSWERS, **cuda_names.ANSWERS}.items():
        setattr(cuda, name, answer)
    for name in ("memory_stats", "memory_stats_as_nested_dict", "memory_summary"):
        setattr(cuda.memory, name, cuda_names.ANSWERS[name])
    # PyTorch's functions for snapshots end in it.
    torch._C._cuda_memorySnapshot = cuda_names.memory_snapshot
    cuda.graphs.CUDAGraph = cuda_names.Graph
    cuda.nccl.is_available = lambda tensors: False
    parallel = torch.nn.parallel.comm
    parallel.scatter = cuda_names.scatter(parallel.scatter)
    cuda.memory.mem_get_info = _ANSWERS["mem_get_info"]
    cuda.random.manual_seed = cuda.random.manual_seed_all = backend.manual_seed
    cuda.amp.autocast = cuda.amp.autocast_mode.autocast = cuda_names.Autocast
    cuda.amp.GradScaler = functools.partial(torch.amp.GradScaler, "rgpu")
    torch.version.cuda = torch.version.cuda or "13.0"


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


class _Event(accelerator.RemoteEvent):
    """`torch.cuda.Event`."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return super().__new__(cls, _device)

    def __init__(self, enable_timing: bool = False, *_: Any, **__: Any) -> None:
        super().__init__(_device, enable_timing)


class _Stream(accelerator.RemoteStream):
    """`torch.cuda.Stream`."""

    def __new__(cls, *_: Any, **__: Any) -> Any:
        return super().__new__(cls, _device)

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()


def _supports(*_: Any, **__: Any) -> bool:
    return True


def is_available() -> bool:
    """`torch.cuda.is_available`. Where there is no session, a warning says why, once: the program
    would compute on the CPU without a word.
    """
    return session.available(warning=True)


def _lazy_init() -> None:
    """PyTorch's C++ calls this before it uses CUDA itself, and would then end the process. Programs
    may call it.

    Raises:
        RuntimeError: C++ or PyTorch calls it.
    """
    caller = sys._getframe(1)
    own = caller.f_globals.get("__name__", "").startswith("torch.")
    if own or "_lazy_init" not in caller.f_code.co_names:
        raise RuntimeError(
            "this call of PyTorch uses CUDA itself, which is not here: where it names the device "
            'cuda, say torch.device("rgpu")'
        )


def _nothing(*_: Any, **__: Any) -> None:
    return None


_ANSWERS: dict[str, Any] = {
    "is_available": is_available,
    "is_initialized": backend.is_initialized,
    "_is_in_bad_fork": backend._is_in_bad_fork,
    "init": _nothing,
    "_lazy_init": _lazy_init,
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
