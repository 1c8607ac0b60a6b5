"""Which processors the node has, and which this process: each half, as two machines would."""

from __future__ import annotations

import os
import sys

_NODE = "RGPU_BENCHMARK_NODE"


def settle() -> str:
    """Starts this program anew on the second half of the processors, because libraries count
    processors when they are imported. Returns the node's processors as `taskset -c` takes them.
    """
    if _NODE not in os.environ:
        every = sorted(os.sched_getaffinity(0))
        half = max(1, len(every) // 2)
        os.environ[_NODE] = ",".join(map(str, every[:half]))
        os.sched_setaffinity(0, every[half : 2 * half] or every)
        os.execv(sys.executable, sys.orig_argv)
    return os.environ[_NODE]


def here() -> str:
    """Returns this process's processors as `taskset -c` takes them."""
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))
