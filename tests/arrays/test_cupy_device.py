"""A program's own kernels, compiled on the node and run on its device, give what NumPy gives."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest
from helpers import clients
from helpers.server import Server, patient_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with patient_server() as one:
        yield one


BEGIN = """
import numpy as np
import rgpu_client.cupy as cp
x = np.linspace(-2, 3, 24).reshape(2, 3, 4)
a = cp.asarray(x)
def check(name, made, expected, rtol=1e-6):
    assert made.dtype == expected.dtype, (name, made.dtype, expected.dtype)
    np.testing.assert_allclose(made.get(), expected, rtol=rtol, err_msg=name)
    print(name)
"""

PROGRAMS = {
    "elementwise": """
        mixed = cp.ElementwiseKernel("T x, T y, int32 k", "T z", "z = x * y + k", "mixed")
        check("broadcast", mixed(a, a[0, 0], 3), x * x[0, 0] + 3)
        check("views", mixed(a.T, a.T[..., ::-1], -1), x.T * x.T[..., ::-1] - 1)
        check("float32", mixed(a.astype("f"), np.float32(2), 1), x.astype("f") * 2 + 1)
        check("integers", mixed(cp.arange(5), 2, 1), np.arange(5) * 2 + 1)
        out = cp.zeros((4, 3, 2)).T
        assert mixed(a, a, 0, out) is out
        check("out", out, x * x)
        two = cp.ElementwiseKernel("T x", "T s, bool p", "s = sin(x); p = x > 0", "two")
        s, p = two(a)
        check("two outputs", s, np.sin(x))
        check("truth", p, x > 0)
        turned = cp.ElementwiseKernel("raw T x, int64 m", "T y", "y = x[m - 1 - i] + x.size()", "turned")
        flat = a.ravel()
        check("raw", turned(flat, 24, size=24), x.ravel()[::-1] + 24)
        c = np.array([1 + 2j, -0.5j, 3], "complex64")
        product = cp.ElementwiseKernel("T x", "T y", "y = x * x + conj(x) / T(2)", "product")
        check("complex", product(cp.asarray(c)), (c * c + c.conj() / np.complex64(2)).astype("complex64"))
    """,
    "reduction": """
        norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "norm")
        check("all", norm(a), np.sqrt((x * x).sum()))
        check("axis", norm(a, axis=1), np.sqrt((x * x).sum(axis=1)))
        check("axes", norm(a, axis=(0, 2), keepdims=True), np.sqrt((x * x).sum(axis=(0, 2), keepdims=True)))
        check("empty", norm(cp.zeros((0, 3)), axis=0), np.zeros(3))
        many = np.random.default_rng(1).normal(size=5000)
        check("many", norm(cp.asarray(many)), np.sqrt((many * many).sum()))
        largest = cp.ReductionKernel("T x", "T y", "x", "max(a, b)", "y = a", None, "largest")
        check("no identity", largest(cp.asarray(many)), many.max())
        dot = cp.ReductionKernel("T x, T y", "T z", "x * y", "a + b", "z = a", "0", "dot")
        check("two arrays", dot(a, a[:, :1]), (x * x[:, :1]).sum())
    """,
    "raw": """
        code = r'''
        template <typename T> __global__ void scaled(T* x, T by, int n) {
          extern __shared__ char space[];
          int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < n) x[i] *= by;
        }
        __constant__ int unused[4];
        extern "C" __global__ void filled(int* x, int n) {
          for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] = i * i;
        }
        '''
        module = cp.RawModule(code=code, options=("--std=c++17",), name_expressions=["scaled<double>"])
        scaled, filled = module.get_function("scaled<double>"), module.get_function("filled")
        y = cp.asarray(x.ravel().copy())
        scaled((1,), (32,), (y, np.float64(3), np.int32(24)), shared_mem=64)
        check("scaled", y, x.ravel() * 3)
        z = cp.zeros(100, dtype="int32")
        filled((1,), (16,), (z[10:], np.int32(90)))
        check("view", z, np.concatenate([np.zeros(10), np.arange(90) ** 2]).astype("int32"))
        broken = cp.RawKernel("extern \\"C\\" __global__ void f() { missing(); }", "f")
        try:
            broken((1,), (1,), ())
        except cp.cuda.compiler.CompileException as error:
            assert "missing" in str(error)
            print("refused")
        check("after", y + 1, x.ravel() * 3 + 1)
    """,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_give_numpys_results(server: Server, name: str) -> None:
    source = BEGIN + textwrap.dedent(PROGRAMS[name])
    done = subprocess.run(
        [sys.executable, "-c", source], env=clients.environment(server.unix), cwd="/", text=True,
        capture_output=True, timeout=150, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
