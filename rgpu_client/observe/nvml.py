"""Asks rgpu's own NVML library, by ctypes: what `rgpu smi` shows is what other tools read."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_uint, c_ulonglong
from typing import TYPE_CHECKING

from msgspec import Struct

from rgpu_common.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
_INSUFFICIENT_SIZE = 7
_TEXT_BYTES = 256
_TRIES = 4  # a process may come between the two calls that list processes


class Process(Struct, frozen=True):
    """A process with a session in the lease."""

    pid: int
    program: str
    memory_bytes: int


class Card(Struct, frozen=True):
    """A device of the lease. None: the node does not say. Watts and degrees are of the whole
    device, `utilization_percent` is the lease's own part of the last second.
    """

    index: int
    name: str | None
    uuid: str | None
    pci_bus_id: str | None
    compute_capability: str | None
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    utilization_percent: int | None
    temperature_c: int | None
    power_mw: int | None
    power_limit_mw: int | None
    fan_percent: int | None
    performance_state: int | None
    processes: tuple[Process, ...]


class Node(Struct, frozen=True):
    """cuda: as "13.0"."""

    driver: str | None
    nvml: str | None
    cuda: str | None
    devices: tuple[Card, ...]


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Pci(ctypes.Structure):
    _fields_ = (
        ("legacy", ctypes.c_char * 16),
        *((name, c_uint) for name in ("domain", "bus", "device", "id", "subsystem")),
        ("bus_id", ctypes.c_char * 32),
    )


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint),
        ("memory", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


def look(folder: Path) -> Node:
    """Returns what the library in `folder` says. It reads the RGPU_* variables of this process.

    Raises:
        ServerError: no server answers, or it refuses.
    """
    library = ctypes.CDLL(str(folder / LIBRARY))
    library.nvmlErrorString.restype = ctypes.c_char_p
    result = library.nvmlInit_v2()
    if result != 0:
        why = library.nvmlErrorString(result).decode()
        raise ServerError(f"the devices of the lease cannot be shown: {why}")
    try:
        count = c_uint()
        library.nvmlDeviceGetCount_v2(byref(count))
        cuda = _cuda(library)
        return Node(
            _text(library, "nvmlSystemGetDriverVersion"),
            _text(library, "nvmlSystemGetNVMLVersion"),
            None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            tuple(_card(library, index) for index in range(count.value)),
        )
    finally:
        library.nvmlShutdown()


def _card(library: ctypes.CDLL, index: int) -> Card:
    handle = ctypes.c_void_p()
    library.nvmlDeviceGetHandleByIndex_v2(index, byref(handle))
    memory, used, pci = _Memory(), _Utilization(), _Pci()
    has_memory = library.nvmlDeviceGetMemoryInfo(handle, byref(memory)) == 0
    has_use = library.nvmlDeviceGetUtilizationRates(handle, byref(used)) == 0
    has_pci = library.nvmlDeviceGetPciInfo_v3(handle, byref(pci)) == 0
    return Card(
        index=index,
        name=_text(library, "nvmlDeviceGetName", handle),
        uuid=_text(library, "nvmlDeviceGetUUID", handle),
        pci_bus_id=pci.bus_id.decode(errors="replace") if has_pci else None,
        compute_capability=_compute(library, handle),
        memory_total_bytes=memory.total if has_memory else None,
        memory_used_bytes=memory.used if has_memory else None,
        utilization_percent=used.gpu if has_use else None,
        temperature_c=_temperature(library, handle),
        power_mw=_number(library, "nvmlDeviceGetPowerUsage", handle),
        power_limit_mw=_number(library, "nvmlDeviceGetEnforcedPowerLimit", handle),
        fan_percent=_number(library, "nvmlDeviceGetFanSpeed", handle),
        performance_state=_number(library, "nvmlDeviceGetPerformanceState", handle),
        processes=tuple(_processes(library, handle)),
    )


def _text(library: ctypes.CDLL, function: str, *arguments: ctypes.c_void_p) -> str | None:
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    if getattr(library, function)(*arguments, text, _TEXT_BYTES) != 0:
        return None
    return text.value.decode(errors="replace")


def _number(library: ctypes.CDLL, function: str, handle: ctypes.c_void_p) -> int | None:
    number = c_uint()
    return number.value if getattr(library, function)(handle, byref(number)) == 0 else None


def _temperature(library: ctypes.CDLL, handle: ctypes.c_void_p) -> int | None:
    number = c_uint()
    return number.value if library.nvmlDeviceGetTemperature(handle, 0, byref(number)) == 0 else None


def _cuda(library: ctypes.CDLL) -> int | None:
    version = ctypes.c_int()
    known = library.nvmlSystemGetCudaDriverVersion_v2(byref(version)) == 0
    return version.value if known else None


def _compute(library: ctypes.CDLL, handle: ctypes.c_void_p) -> str | None:
    major, minor = ctypes.c_int(), ctypes.c_int()
    ask = library.nvmlDeviceGetCudaComputeCapability
    known = ask(handle, byref(major), byref(minor)) == 0
    return f"{major.value}.{minor.value}" if known else None


def _processes(library: ctypes.CDLL, handle: ctypes.c_void_p) -> Iterator[Process]:
    count = c_uint()
    for _ in range(_TRIES):
        rows = (_Process * count.value)()
        ask = library.nvmlDeviceGetComputeRunningProcesses_v3
        result = ask(handle, byref(count), rows if count.value else None)
        if result != _INSUFFICIENT_SIZE:
            break
    else:
        return
    if result != 0:
        return
    for row in rows[: count.value]:
        program = _text(library, "nvmlSystemGetProcessName", c_uint(row.pid))  # type: ignore[arg-type]
        yield Process(row.pid, program or "", row.memory)
