"""Opens NVIDIA's management library (NVML) of this machine."""

from __future__ import annotations

import ctypes
from typing import Any

_LIBRARY = "libnvidia-ml.so.1"
# rgpu's own library of this name has it. That one asks a server, and this is the server.
_OURS = "rgpu_shim_version"


def open_management() -> Any:
    """Returns the module of the library, after nvmlInit; None: the machine has no such library.

    The caller calls nvmlShutdown.
    """
    try:
        import pynvml as nvml

        if hasattr(ctypes.CDLL(_LIBRARY), _OURS):
            return None
    except (ImportError, OSError):
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml
