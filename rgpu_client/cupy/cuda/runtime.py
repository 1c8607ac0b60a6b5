"""The part of `cupy.cuda.runtime` that programs ask for. Names are CUDA's."""

from __future__ import annotations

from typing import Any

from rgpu_client.cupy import errors
from rgpu_client.cupy._session import session
from rgpu_client.cupy.cuda.device import LIMITS, Device, properties

CUDARuntimeError = errors.CUDARuntimeError
cudaErrorMemoryAllocation = 2


def getDeviceCount() -> int:
    """Returns 1: a session has one device."""
    return 1


def getDevice() -> int:
    """Returns 0."""
    return 0


def setDevice(device: int) -> None:
    """Takes device 0.

    Raises:
        CUDARuntimeError: it is another device.
    """
    Device(device)


def getDeviceProperties(device: int) -> dict[str, Any]:
    """Returns the properties that a program can use here: the memory is that of the lease.

    Raises:
        CUDARuntimeError: it is another device.
    """
    total = Device(device).mem_info[1]
    name, major, minor, processors = properties()
    return {
        "name": name.encode(), "major": major, "minor": minor, "totalGlobalMem": total,
        "multiProcessorCount": processors, "warpSize": LIMITS["WarpSize"],
        "maxThreadsPerBlock": LIMITS["MaxThreadsPerBlock"],
    }  # fmt: skip


def deviceSynchronize() -> None:
    """Waits until the node has done everything."""
    session().issuer.sync()


def memGetInfo() -> tuple[int, int]:
    """Returns free and total bytes, as the lease allows them."""
    return Device().mem_info


def driverGetVersion() -> int:
    """Returns the version of CUDA whose interface this is."""
    return runtimeGetVersion()


def runtimeGetVersion() -> int:
    """Returns the version of CUDA whose interface this is."""
    return 13000
