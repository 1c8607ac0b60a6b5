"""Taichi: a kernel over ndarrays."""

import numpy as np
import taichi as ti


@ti.kernel
def saxpy(a: ti.f32, x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in range(x.shape[0]):
        y[i] = a * x[i] + y[i]


def main() -> None:
    ti.init(arch=ti.cuda, log_level=ti.ERROR)
    assert ti.lang.impl.current_cfg().arch == ti.cuda
    rng = np.random.default_rng(7)
    xs, ys = rng.standard_normal((2, 10_000)).astype(np.float32)
    x, y = ti.ndarray(ti.f32, 10_000), ti.ndarray(ti.f32, 10_000)
    x.from_numpy(xs)
    y.from_numpy(ys)
    saxpy(1.5, x, y)
    np.testing.assert_allclose(y.to_numpy(), np.float32(1.5) * xs + ys, rtol=1e-5, atol=1e-6)
    print("ok")


if __name__ == "__main__":
    main()
