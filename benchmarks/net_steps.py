"""Steps of three workloads over the path that RGPU_SERVER names, each time a line asks for one.

It is `netprobe.cost`'s workloads as programs: `call` is 1,000 launches and a synchronisation,
`bulk` 64 MiB each way, `mixed` a numba program that copies, launches and waits.  Prints seconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
from numba import cuda

MIB = 1 << 20


@cuda.jit
def nothing(out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """Costs the device as little as a launch can."""
    if cuda.grid(1) == 0:
        out[0] += 1


class Steps:
    """One session with its buffers."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self._data = rng.integers(0, 255, 64 * MIB, np.uint8)
        self._back = np.empty_like(self._data)
        self._device = cuda.to_device(self._data)
        self._counter = cuda.to_device(np.zeros(1, np.int64))
        self._launch(2)

    def _launch(self, count: int) -> None:
        for _ in range(count):
            nothing[1, 1](self._counter)
        cuda.synchronize()

    def call(self) -> None:
        self._launch(1000)

    def bulk(self) -> None:
        self._device.copy_to_device(self._data)
        self._device.copy_to_host(self._back)

    def mixed(self) -> None:
        for i in range(4):
            self._device[: 2 * MIB].copy_to_device(self._data[: 2 * MIB])
            self._launch(250)
            self._device[: MIB // 2].copy_to_host(self._back[: MIB // 2])
            assert self._back[i] == self._data[i]


def main() -> None:
    steps = Steps()
    known: dict[str, Callable[[], None]] = {
        "call": steps.call, "bulk": steps.bulk, "mixed": steps.mixed,
    }  # fmt: skip
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        known[line.strip()]()
        print(time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
