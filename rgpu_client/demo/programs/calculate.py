# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201
"""An ordinary numba-cuda program: a reduction and a tiled matrix product, checked against NumPy.

It prints one JSON object on each line: the step, whether NumPy agrees, and the time it took.
"""

import json
import time

import numpy as np
from numba import cuda, float32, float64

TILE = 16
THREADS = 128


@cuda.jit
def reduce_sum(values, partial):
    """Each block adds up its part of `values` in shared memory."""
    shared = cuda.shared.array(THREADS, float64)
    thread = cuda.threadIdx.x
    total = 0.0
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        total += values[i]
    shared[thread] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if thread < step:
            shared[thread] += shared[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread == 0:
        partial[cuda.blockIdx.x] = shared[0]


@cuda.jit
def matmul(a, b, c):
    """c = a @ b, a tile at a time."""
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    column, row = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        tile_a[y, x] = 0
        tile_b[y, x] = 0
        if row < a.shape[0] and start + x < a.shape[1]:
            tile_a[y, x] = a[row, start + x]
        if column < b.shape[1] and start + y < b.shape[0]:
            tile_b[y, x] = b[start + y, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[y, k] * tile_b[k, x]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


def report(step, right, started):
    """Prints one result."""
    seconds = time.perf_counter() - started
    print(json.dumps({"step": step, "right": bool(right), "seconds": seconds}), flush=True)


def main():
    """Runs everything once."""
    started = time.perf_counter()
    device = cuda.get_current_device()
    name = device.name.decode() if isinstance(device.name, bytes) else str(device.name)
    free, total = cuda.current_context().get_memory_info()
    report(f"found '{name}' with {total >> 20} MiB, {free >> 20} free", True, started)

    rng = np.random.default_rng(1)
    values = rng.standard_normal(1_000_000)
    started = time.perf_counter()
    partial = cuda.device_array(32, np.float64)
    reduce_sum[32, THREADS](cuda.to_device(values), partial)
    total = partial.copy_to_host().sum()
    report("sum of 1,000,000 numbers", np.isclose(total, values.sum(), atol=1e-6), started)

    a = rng.standard_normal((200, 300)).astype(np.float32)
    b = rng.standard_normal((300, 250)).astype(np.float32)
    started = time.perf_counter()
    c = cuda.device_array((200, 250), np.float32)
    grid = ((250 + TILE - 1) // TILE, (200 + TILE - 1) // TILE)
    matmul[grid, (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
    product = c.copy_to_host()
    report("matrix product 200x300x250", np.allclose(product, a @ b, atol=1e-3), started)


if __name__ == "__main__":
    main()
