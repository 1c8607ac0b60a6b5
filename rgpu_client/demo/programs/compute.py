# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
"""An ordinary numba-cuda program: it computes for some seconds. `python compute.py SECONDS`."""

import sys
import time

import numpy as np
from numba import cuda


@cuda.jit
def iterate(values, count):
    """Newton's method for the root of 2, over and over."""
    i = cuda.grid(1)
    if i < values.size:
        x = values[i]
        for _ in range(count):
            x = 0.5 * (x + 2.0 / x)
        values[i] = x


def main():
    """Launches kernels until the time is over."""
    values = cuda.to_device(np.linspace(1, 2, 4096))
    iterate[32, 128](values, 10)
    cuda.synchronize()
    print("computing with numba-cuda", flush=True)
    ends = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < ends:
        for _ in range(4):
            iterate[32, 128](values, 200)
        cuda.synchronize()
    sys.exit(0 if np.allclose(values.copy_to_host(), np.sqrt(2)) else 1)


if __name__ == "__main__":
    main()
