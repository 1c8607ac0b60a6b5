"""Kernels of NVIDIA Warp: arithmetic, a stencil, atomics, vectors and matrices, random numbers."""

import warp as wp


@wp.kernel
def saxpy(x: wp.array(dtype=float), y: wp.array(dtype=float), a: float):
    i = wp.tid()
    y[i] = a * x[i] + y[i]


@wp.kernel
def diffuse(u: wp.array2d(dtype=float), out: wp.array2d(dtype=float), rate: float):
    i, j = wp.tid()
    if i == 0 or j == 0 or i == u.shape[0] - 1 or j == u.shape[1] - 1:
        out[i, j] = u[i, j]
        return
    around = u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1]
    out[i, j] = u[i, j] + rate * (around - 4.0 * u[i, j])


@wp.kernel
def histogram(x: wp.array(dtype=float), counts: wp.array(dtype=int)):
    i = wp.tid()
    wp.atomic_add(counts, int(x[i] * 16.0), 1)


@wp.kernel
def turn(points: wp.array(dtype=wp.vec3), axis: wp.vec3, angle: float):
    i = wp.tid()
    spin = wp.quat_from_axis_angle(wp.normalize(axis), angle)
    points[i] = wp.quat_rotate(spin, points[i])


@wp.kernel
def invert(matrices: wp.array(dtype=wp.mat33)):
    i = wp.tid()
    matrices[i] = wp.inverse(matrices[i])


@wp.kernel
def throw(seed: int, out: wp.array(dtype=float)):
    i = wp.tid()
    state = wp.rand_init(seed, i)
    out[i] = wp.randf(state)
