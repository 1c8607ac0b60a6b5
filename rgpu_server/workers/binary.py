"""Finds the worker and gateway programs and the driver libraries."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from rgpu_common.errors import DeviceError
from rgpu_common.parts import compiled_part

_SEARCHED = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/lib/wsl/lib",
    "/usr/local/nvidia/lib64",
    "/usr/local/cuda/compat",
)


def worker_path() -> Path:
    """Returns the rgpu-worker of the installed package; MissingPartError if it was not built."""
    return compiled_part("rgpu_server", "bin/rgpu-worker")


def gateway_path() -> Path:
    """Returns the rgpu-gateway of the installed package; MissingPartError if it was not built."""
    return compiled_part("rgpu_server", "bin/rgpu-gateway")


def emulated_library() -> Path:
    """Returns the emulated device's driver library; MissingPartError if it was not built."""
    return compiled_part("rgpu_emu", "lib/librgpu_emu.so")


def cuda_library() -> Path:
    """Returns NVIDIA's libcuda.so.1, never rgpu's own shim.

    RGPU_LIBCUDA names the file if it is in an unusual place.

    Raises:
        DeviceError: there is no such library; the sentence says where it was searched.
    """
    named = os.environ.get("RGPU_LIBCUDA")
    folders = [*os.environ.get("LD_LIBRARY_PATH", "").split(":"), *_SEARCHED]
    candidates = [Path(named)] if named else [Path(f) / "libcuda.so.1" for f in folders if f]
    found = [path for path in candidates if path.exists()]
    for path in found:
        if not _is_shim(path):
            return path
    if found:
        raise DeviceError(f"{found[0]} is rgpu's own client library, not NVIDIA's driver")
    where = named or ", ".join(dict.fromkeys(str(path.parent) for path in candidates))
    raise DeviceError(
        f"NVIDIA's driver library libcuda.so.1 was not found in {where}; install the driver, name "
        "the file in RGPU_LIBCUDA, or serve an emulated device with --device emulated"
    )


def _is_shim(path: Path) -> bool:
    try:
        return hasattr(ctypes.CDLL(str(path)), "rgpu_shim_version")
    except OSError as error:
        raise DeviceError(f"{path} cannot be loaded: {error}") from None
