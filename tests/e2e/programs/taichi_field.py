"""Taichi: a kernel over a field, a reduction with an atomic, and ti.sync."""

import numpy as np
import taichi as ti


def main() -> None:
    ti.init(arch=ti.cuda, log_level=ti.ERROR)
    assert ti.lang.impl.current_cfg().arch == ti.cuda
    grid = ti.field(ti.f32, (64, 48))
    total = ti.field(ti.f32, ())

    @ti.kernel
    def fill():
        for i, j in grid:
            grid[i, j] = ti.sin(i * 0.1) + j * 0.5

    @ti.kernel
    def add_up():
        for i, j in grid:
            total[None] += grid[i, j]

    fill()
    ti.sync()
    add_up()
    ti.sync()
    i, j = np.meshgrid(np.arange(64), np.arange(48), indexing="ij")
    expected = np.sin(i * 0.1) + j * 0.5
    np.testing.assert_allclose(grid.to_numpy(), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total[None], expected.sum(), rtol=1e-4)
    print("ok")


if __name__ == "__main__":
    main()
