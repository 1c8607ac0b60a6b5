"""The CUresults that the control plane itself returns."""

from __future__ import annotations

from typing import Final

CUDA_ERROR_OUT_OF_MEMORY: Final = 2
CUDA_ERROR_DEVICE_UNAVAILABLE: Final = 46
CUDA_ERROR_INVALID_CONTEXT: Final = 201
CUDA_ERROR_INVALID_HANDLE: Final = 400
CUDA_ERROR_LAUNCH_TIMEOUT: Final = 702
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: Final = 803
CUDA_ERROR_UNKNOWN: Final = 999
