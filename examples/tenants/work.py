"""A tenant's program: computes with numba-cuda while it is told to.

It reads words on its input, a line each: `work`, `rest`. It ends with the input.
"""

from __future__ import annotations

import sys
import threading

import numpy as np
from numba import cuda

LAUNCHES = 8


@cuda.jit
def iterate(values, count):
    """Newton's method for the root of 2, over and over."""
    i = cuda.grid(1)
    if i < values.size:
        x = values[i]
        for _ in range(count):
            x = 0.5 * (x + 2.0 / x)
        values[i] = x


def listen(working: threading.Event, ended: threading.Event) -> None:
    """Follows the words on the input."""
    for line in sys.stdin:
        if line.strip() == "work":
            working.set()
        else:
            working.clear()
    ended.set()
    working.set()


def main() -> int:
    """Computes until the input ends; returns 0 if the result is right."""
    values = cuda.to_device(np.linspace(1, 2, 4096))
    iterate[32, 128](values, 10)  # compiles the kernel before anything is measured
    cuda.synchronize()
    print("ready", flush=True)
    working, ended = threading.Event(), threading.Event()
    threading.Thread(target=listen, args=(working, ended), daemon=True).start()
    while not ended.is_set():
        working.wait()
        for _ in range(LAUNCHES):  # the device has the next launch at hand when one ends
            iterate[32, 128](values, 400)
        cuda.synchronize()
    return 0 if np.allclose(values.copy_to_host(), np.sqrt(2)) else 1


if __name__ == "__main__":
    sys.exit(main())
