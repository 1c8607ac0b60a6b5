"""Tiled matrix product in shared memory, sizes that are no multiple of the tile."""

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def matmul(a, b, c):
    tile_a = cuda.shared.array((TILE, TILE), float32)
    tile_b = cuda.shared.array((TILE, TILE), float32)
    col, row = cuda.grid(2)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    total = float32(0.0)
    for t in range((a.shape[1] + TILE - 1) // TILE):
        tile_a[ty, tx] = 0
        tile_b[ty, tx] = 0
        if row < a.shape[0] and t * TILE + tx < a.shape[1]:
            tile_a[ty, tx] = a[row, t * TILE + tx]
        if col < b.shape[1] and t * TILE + ty < b.shape[0]:
            tile_b[ty, tx] = b[t * TILE + ty, col]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_a[ty, k] * tile_b[k, tx]
        cuda.syncthreads()
    if row < c.shape[0] and col < c.shape[1]:
        c[row, col] = total


def main() -> None:
    rng = np.random.default_rng(3)
    a = rng.standard_normal((97, 130)).astype(np.float32)
    b = rng.standard_normal((130, 71)).astype(np.float32)
    c = cuda.device_array((97, 71), np.float32)
    grid = ((71 + TILE - 1) // TILE, (97 + TILE - 1) // TILE)
    matmul[grid, (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
    np.testing.assert_allclose(c.copy_to_host(), a @ b, rtol=1e-4, atol=1e-4)
    print("ok")


if __name__ == "__main__":
    main()
