"""The GPUs of this machine and their MIG slices, as NVIDIA's management library lists them.

A GPU in MIG mode takes programs in its slices only. CUDA shows a process one slice, that of
CUDA_VISIBLE_DEVICES, and then no other GPU. A worker serves one device, so each slice is a device
of its own; a GPU beside one in MIG mode has to be named by its UUID in the same way.
"""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from rgpu_common.errors import DeviceError, UsageError
from rgpu_common.mig import check_profile, part_of
from rgpu_common.units import PPM
from rgpu_server.management import open_management

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_IN_NAME = re.compile(r" MIG (\S+)$")


class Slice(Struct, frozen=True):
    """A MIG slice. profile: "1g.10gb". part_ppm: what part of its GPU it is."""

    uuid: str
    profile: str
    part_ppm: int = PPM


class Gpu(Struct, frozen=True):
    """A GPU. carved: it is in MIG mode; then it takes no programs but in its slices."""

    uuid: str
    carved: bool = False
    slices: tuple[Slice, ...] = ()


class Hardware(Struct, frozen=True):
    """What a device of the driver is. visible: for CUDA_VISIBLE_DEVICES; "" hides no device."""

    ordinal: int
    visible: str = ""
    slice: Slice | None = None


def hardware_of(gpus: Sequence[Gpu], ordinal: int, uuid: str) -> Hardware:
    """Returns the GPU with this number, or the slice with this UUID ("": the GPU).

    Raises:
        DeviceError: it is not there, or is a GPU in MIG mode.
    """
    if uuid:
        found = next((one for gpu in gpus for one in gpu.slices if one.uuid == uuid), None)
        if found is None:
            raise DeviceError(f"this machine has no MIG slice {uuid}; {_slices_of(gpus)}")
        return Hardware(0, uuid, found)
    if not any(gpu.carved for gpu in gpus):
        return Hardware(ordinal)
    if ordinal >= len(gpus):
        raise DeviceError(f"device cuda:{ordinal}: this machine has {len(gpus)} GPUs, from 0")
    gpu = gpus[ordinal]
    if gpu.carved:
        raise DeviceError(
            f"device cuda:{ordinal} is in MIG mode, and takes programs in its slices only; "
            f"{_slices_of([gpu])}"
        )
    return Hardware(0, gpu.uuid)


def device_words(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """Returns every GPU that is whole and every slice, as `--device` takes them."""
    words: list[str] = []
    for number, gpu in enumerate(gpus):
        slices = [f"cuda:{one.uuid}" for one in gpu.slices]
        words += slices if gpu.carved else [f"cuda:{number}"]
    return tuple(words)


def look_at_gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs in the order of their PCI addresses; () without the library."""
    nvml = open_management()
    if nvml is None:
        return ()
    try:
        count = nvml.nvmlDeviceGetCount()
        return tuple(_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(count))
    except nvml.NVMLError:
        return ()
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _slices_of(gpus: Sequence[Gpu]) -> str:
    words = [f"cuda:{one.uuid} ({one.profile})" for gpu in gpus for one in gpu.slices]
    if words:
        return "name its slices with --device: " + ", ".join(words)
    return "`nvidia-smi -L` lists slices, and `nvidia-smi mig` makes them"


def _gpu(nvml: Any, handle: Any) -> Gpu:
    uuid = _text(nvml.nvmlDeviceGetUUID(handle))
    try:
        carved = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    except nvml.NVMLError:  # a GPU without MIG
        carved = False
    return Gpu(uuid, carved, tuple(_slices(nvml, handle)) if carved else ())


def _slices(nvml: Any, gpu: Any) -> Iterator[Slice]:
    most = nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)
    for number in range(most):
        found = _slice(nvml, gpu, number, most)
        if found is not None:
            yield found


def _slice(nvml: Any, gpu: Any, number: int, most: int) -> Slice | None:
    """Returns the slice with this number; None: there is none, or its profile is unknown."""
    try:
        handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
        profile = _profile(nvml, handle)
        return Slice(_text(nvml.nvmlDeviceGetUUID(handle)), profile, part_of(profile, most))
    except (nvml.NVMLError, UsageError):
        return None


def _profile(nvml: Any, handle: Any) -> str:
    """Returns the profile that the driver names; else it is made of the slice's facts."""
    named = _IN_NAME.search(_text(nvml.nvmlDeviceGetName(handle)))
    if named is not None:
        return check_profile(named[1])
    facts = nvml.nvmlDeviceGetAttributes(handle)
    whole, own = facts.gpuInstanceSliceCount, facts.computeInstanceSliceCount
    part = "" if own == whole else f"{own}c."
    return check_profile(f"{part}{whole}g.{math.ceil(facts.memorySizeMB / 1024)}gb")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
