"""Measures in a process of its own how long the device takes to load and compile each kernel.

`python -m benchmarks.emu.compile_times FILE`: FILE is JSON, {kernel: PTX}.  Prints, as JSON, the
nanoseconds of wall time from cuModuleLoadData until the kernel can be launched.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.emu.device import Device


def main() -> int:
    texts: dict[str, str] = json.loads(Path(sys.argv[1]).read_text())
    device = Device()
    times = {}
    for name, ptx in texts.items():
        start = time.perf_counter_ns()
        device.function(ptx.encode(), name)
        times[name] = time.perf_counter_ns() - start
    print(json.dumps(times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
