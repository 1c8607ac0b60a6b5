"""Histogram with atomics in shared and in global memory."""

import numpy as np
from numba import cuda, int32


@cuda.jit
def histogram(x, out):
    local = cuda.shared.array(64, int32)
    tid = cuda.threadIdx.x
    if tid < 64:
        local[tid] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        cuda.atomic.add(local, x[i], 1)
    cuda.syncthreads()
    if tid < 64:
        cuda.atomic.add(out, tid, local[tid])


def main() -> None:
    x = np.random.default_rng(4).integers(0, 64, 100_000).astype(np.int32)
    out = cuda.to_device(np.zeros(64, np.int32))
    histogram[8, 128](cuda.to_device(x), out)
    np.testing.assert_array_equal(out.copy_to_host(), np.bincount(x, minlength=64))
    print("ok")


if __name__ == "__main__":
    main()
