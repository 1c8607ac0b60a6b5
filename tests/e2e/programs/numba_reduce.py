"""Grid-stride sum with shared memory and barriers."""

import numpy as np
from numba import cuda, float64

THREADS = 128


@cuda.jit
def reduce_sum(x, partial):
    shared = cuda.shared.array(THREADS, float64)
    tid = cuda.threadIdx.x
    total = 0.0
    for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
        total += x[i]
    shared[tid] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if tid < step:
            shared[tid] += shared[tid + step]
        cuda.syncthreads()
        step //= 2
    if tid == 0:
        partial[cuda.blockIdx.x] = shared[0]


def main() -> None:
    x = np.random.default_rng(2).standard_normal(200_001)
    partial = cuda.device_array(16, np.float64)
    reduce_sum[16, THREADS](cuda.to_device(x), partial)
    np.testing.assert_allclose(partial.copy_to_host().sum(), x.sum(), rtol=1e-11, atol=1e-9)
    print("ok")


if __name__ == "__main__":
    main()
