"""The `.target` of a module: decides whether its code may run on the emulated device.

https://docs.nvidia.com/cuda/parallel-thread-execution/#ptx-module-directives-target: code for an
architecture runs on that architecture and on later ones. With the suffix `a` it runs on that
architecture alone, with `f` on that architecture's family. NVIDIA's driver refuses other code when
it compiles, with CUDA_ERROR_INVALID_PTX and a line in the error log.
"""

from __future__ import annotations

import re
from typing import Final

from rgpu_emu.ptx.errors import PtxError
from rgpu_emu.ptx.lex import whole

DEVICE_TARGET: Final = 80  # kComputeMajor and kComputeMinor in device/device.h
_ARCHITECTURE: Final = re.compile(r"\b(?:sm|compute)_(\d+)([af]?)\b")


def read_target(text: str) -> int:
    """Returns the number of the architecture in a list of targets; 0 if it names none.

    Raises:
        PtxError: 218 for code that the device may not run.
    """
    found = _ARCHITECTURE.search(text)
    if found is None:
        return 0
    number, suffix = whole(found.group(1), "the .target"), found.group(2)
    if not suffix and number <= DEVICE_TARGET:
        return number
    runs = {"": "or later", "a": "alone", "f": "and its family alone"}[suffix]
    raise PtxError(
        f"code for .target {found.group()} runs on sm_{number} {runs}, and this device is "
        f"sm_{DEVICE_TARGET}: compile for compute_{DEVICE_TARGET} or earlier"
    )
