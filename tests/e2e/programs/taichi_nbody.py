"""Taichi: steps of an n-body simulation, against the same steps in NumPy."""

import numpy as np
import taichi as ti

N, STEPS, DT, EPS = 64, 5, 0.01, 0.05


def main() -> None:
    ti.init(arch=ti.cuda, log_level=ti.ERROR, default_fp=ti.f64)
    assert ti.lang.impl.current_cfg().arch == ti.cuda
    pos, vel = ti.Vector.field(3, ti.f64, N), ti.Vector.field(3, ti.f64, N)
    rng = np.random.default_rng(8)
    p, v = rng.standard_normal((2, N, 3))
    pos.from_numpy(p)
    vel.from_numpy(v)

    @ti.kernel
    def accelerate():
        for i in range(N):
            force = ti.Vector([0.0, 0.0, 0.0])
            for j in range(N):
                d = pos[j] - pos[i]
                force += d / (d.norm_sqr() + EPS) ** 1.5
            vel[i] += DT * force

    @ti.kernel
    def move():
        for i in range(N):
            pos[i] += DT * vel[i]

    for _ in range(STEPS):
        accelerate()
        move()
    ti.sync()
    for _ in range(STEPS):
        d = p[None] - p[:, None]
        v += DT * (d / ((d**2).sum(-1, keepdims=True) + EPS) ** 1.5).sum(1)
        p += DT * v
    np.testing.assert_allclose(pos.to_numpy(), p, rtol=1e-9, atol=1e-10)
    print("ok")


if __name__ == "__main__":
    main()
