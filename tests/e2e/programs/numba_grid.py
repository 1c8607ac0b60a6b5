"""A barrier of the whole grid: each step reads what other blocks wrote in the step before."""

import numpy as np
from numba import cuda

SIZE, THREADS, STEPS = 1000, 64, 5


@cuda.jit
def smooth(a, b):
    grid = cuda.cg.this_grid()
    for _ in range(STEPS):
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            b[i] = a[i] + a[(i + 1) % a.size]
        grid.sync()
        for i in range(cuda.grid(1), a.size, cuda.gridsize(1)):
            a[i] = b[a.size - 1 - i] % 1000
        grid.sync()


def main() -> None:
    a = np.arange(SIZE, dtype=np.int64)
    device, other = cuda.to_device(a), cuda.device_array(SIZE, np.int64)
    smooth[1, THREADS](device, other)  # compiles
    most = smooth.overloads[smooth.signatures[0]].max_cooperative_grid_blocks(THREADS)
    assert most >= 2, most
    device = cuda.to_device(a)
    smooth[min(most, SIZE // THREADS), THREADS](device, other)
    for _ in range(STEPS):
        a = (a + np.roll(a, -1))[::-1] % 1000
    np.testing.assert_array_equal(device.copy_to_host(), a)
    print("ok")


if __name__ == "__main__":
    main()
