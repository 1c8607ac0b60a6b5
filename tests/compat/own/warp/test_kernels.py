"""Warp's kernels, compiled ahead to PTX and launched by cuda.bindings, against NumPy and Warp's CPU.

Warp itself allocates and copies with a statically linked CUDA runtime (docs/reference/
compatibility.md); its compiler and its CPU device need none.
"""

import ctypes

import kernels
import numpy as np
import pytest
import warp as wp
from cuda.bindings import driver
from warp._src.types import array_t, launch_bounds_t

BLOCK = 128


@pytest.fixture(scope="module")
def code(tmp_path_factory):
    folder = tmp_path_factory.mktemp("warp")
    wp.compile_aot_module(kernels, arch=80, module_dir=folder, use_ptx=True, strip_hash=True)
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    return ok(driver.cuModuleLoadData(next(folder.glob("*.ptx")).read_bytes()))


def run(code, name, shape, *arguments):
    """Launches a kernel on copies of its arrays; returns what they then have."""
    held, given = [], [launch_bounds_t(shape)]
    for argument in arguments:
        if not isinstance(argument, np.ndarray):
            given.append(argument)
            continue
        address = ok(driver.cuMemAlloc(argument.nbytes))
        ok(driver.cuMemcpyHtoD(address, argument.ctypes.data, argument.nbytes))
        held.append((address, argument))
        # Vectors and matrices are elements of one dimension.
        sides, strides = argument.shape[: len(shape)], argument.strides[: len(shape)]
        given.append(array_t(int(address), 0, len(sides), sides, strides))
    kernel = ok(driver.cuModuleGetFunction(code, f"{name}_cuda_kernel_forward".encode()))
    places = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
    blocks = -(-int(np.prod(shape)) // BLOCK)
    where = ctypes.addressof(places)
    ok(driver.cuLaunchKernel(kernel, blocks, 1, 1, BLOCK, 1, 1, 0, 0, where, 0))
    found = []
    for address, argument in held:
        out = np.empty_like(argument)
        ok(driver.cuMemcpyDtoH(out.ctypes.data, address, out.nbytes))
        ok(driver.cuMemFree(address))
        found.append(out)
    return found


def ok(answer):
    assert int(answer[0]) == 0
    return answer[1] if len(answer) > 1 else None


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def test_saxpy(code, rng):
    x, y = rng.standard_normal((2, 1000)).astype(np.float32)
    _, found = run(code, "saxpy", (1000,), x, y, ctypes.c_float(2.5))
    np.testing.assert_allclose(found, np.float32(2.5) * x + y, rtol=1e-6, atol=1e-6)


def test_a_stencil(code, rng):
    u = rng.standard_normal((60, 70)).astype(np.float32)
    _, found = run(code, "diffuse", u.shape, u, np.zeros_like(u), ctypes.c_float(0.2))
    expected = u.copy()
    around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
    expected[1:-1, 1:-1] += np.float32(0.2) * (around - 4 * u[1:-1, 1:-1])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_atomics(code, rng):
    x = rng.random(5000, np.float32)
    _, found = run(code, "histogram", (5000,), x, np.zeros(16, np.int32))
    np.testing.assert_array_equal(found, np.histogram(x, 16, (0, 1))[0])


@pytest.mark.parametrize(
    ("name", "kind", "sides", "more"),
    [("turn", wp.vec3, (3,), (wp.vec3(1.0, 2.0, 3.0), 0.7)), ("invert", wp.mat33, (3, 3), ())],
)
def test_vectors_and_matrices_as_on_the_cpu(code, rng, name, kind, sides, more):
    values = rng.standard_normal((300, *sides)).astype(np.float32)
    here = wp.array(values, dtype=kind, device="cpu")
    wp.launch(getattr(kernels, name), dim=300, inputs=[here, *more], device="cpu")
    given = [ctypes.c_float(x) if isinstance(x, float) else x for x in more]
    (found,) = run(code, name, (300,), values, *given)
    np.testing.assert_allclose(found, here.numpy(), rtol=2e-3, atol=1e-4)


def test_random_numbers_as_on_the_cpu(code):
    here = wp.zeros(1000, dtype=float, device="cpu")
    wp.launch(kernels.throw, dim=1000, inputs=[42, here], device="cpu")
    (found,) = run(code, "throw", (1000,), ctypes.c_int(42), np.zeros(1000, np.float32))
    np.testing.assert_array_equal(found, here.numpy())


def test_arrays_of_warp_itself():
    """Warp's own allocations, which go through the runtime that is linked into it."""
    np.testing.assert_array_equal(wp.zeros(10, dtype=float, device="cuda:0").numpy(), np.zeros(10))
