"""Asks a driver library for its devices: `python cuda_probe.py LIBRARY [ORDINAL]` prints a JSON
object about one of them, or how many there are.

A script of its own, without imports of ours, so that the process that loads the driver is small
and short-lived.
"""

from __future__ import annotations

import ctypes
import json
import sys
import uuid

# CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_COMPUTE_MAJOR, _COMPUTE_MINOR = 75, 76


def probe(path: str, ordinal: int | None) -> dict[str, str | int]:
    """Returns the facts about a device, or the count of devices, or an error sentence."""
    library = ctypes.CDLL(path)
    result = library.cuInit(0)
    if result != 0:
        return {"error": f"cuInit gave {result}: the driver finds no usable GPU"}
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    if ordinal is None:
        return {"count": count.value}
    if ordinal >= count.value:
        return {"error": f"of the driver's devices, numbered from 0, the last is {count.value - 1}"}
    device = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    raw = (ctypes.c_char * 16)()
    memory = ctypes.c_size_t()
    results = (
        library.cuDeviceGet(ctypes.byref(device), ordinal),
        library.cuDeviceGetName(name, 256, device),
        library.cuDeviceGetUuid(ctypes.byref(raw), device),
        library.cuDeviceTotalMem_v2(ctypes.byref(memory), device),
    )
    if any(results):
        return {"error": f"the driver answered {results} when asked about the device"}
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return {
        "cuda_version": version.value,
        "compute_major": _attribute(library, device, _COMPUTE_MAJOR),
        "compute_minor": _attribute(library, device, _COMPUTE_MINOR),
        "name": name.value.decode(errors="replace"),
        "uuid": f"GPU-{uuid.UUID(bytes=bytes(raw))}",
        "memory_bytes": memory.value,
    }


def _attribute(library: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    library.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value


if __name__ == "__main__":
    try:
        answer = probe(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
    except OSError as error:
        answer = {"error": f"the driver library cannot be loaded: {error}"}
    print(json.dumps(answer))
