"""Which array libraries this machine has, and how workers that execute them are started."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec.structs import replace

from rgpu_common.arrays.seams import Seam
from rgpu_server.core.pool import array_pool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rgpu_server.workers.process import WorkerOptions

# What must be importable: where there is a GPU, and where something stands in for the library.
_NEEDED = {
    (Seam.CUPY, False): ("msgpack", "cupy"),
    (Seam.CUPY, True): ("msgpack", "numpy"),
    (Seam.TORCH, False): ("msgpack", "torch"),
    (Seam.TORCH, True): ("msgpack", "torch"),
}


def array_workers(options: Mapping[str, WorkerOptions]) -> dict[str, WorkerOptions]:
    """Returns pool -> how to start its workers, for the array libraries that are installed."""
    found = {}
    for library, of_device in options.items():
        for seam in Seam:
            if all(find_spec(name) is not None for name in _NEEDED[seam, of_device.emulated]):
                program = [sys.executable, "-I", "-m", "rgpu_server.arrays.worker", seam.word]
                pool = array_pool(library, seam.word)
                found[pool] = replace(of_device, program=program)
    return found
