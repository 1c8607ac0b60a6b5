"""CUDA C++ as NVRTC compiles it (as cuda.core does), run in the reference runner."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ptx.harness import Kernel
from ptx.nvrtc import compile_cuda

Array = npt.NDArray[Any]
SOURCE = r"""
extern "C" {
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void recursion(int* out) { out[threadIdx.x] = fibonacci(threadIdx.x % 12); }

typedef float (*Function)(float);
__device__ float twice(float x) { return x * 2; }
__device__ float next(float x) { return x + 1; }
__device__ Function table[2] = {twice, next};
__global__ void pointers(float* out) { out[threadIdx.x] = table[threadIdx.x & 1](threadIdx.x); }

struct Parameters { double a; int b[5]; float c; };
__global__ void structure(Parameters p, int i, double* out) { out[0] = p.a + p.b[i] + p.c; }

extern __shared__ double dynamic[];
__global__ void reverse(double* out) {
  dynamic[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = dynamic[blockDim.x - 1 - threadIdx.x];
}

__constant__ float coefficients[4] = {1, 2, 3, 4};
__global__ void polynomial(const float* x, float* out) {
  float v = x[threadIdx.x];
  out[threadIdx.x] = ((coefficients[3] * v + coefficients[2]) * v + coefficients[1]) * v + coefficients[0];
}

__global__ void choose(int* out) {
  int r;
  switch (threadIdx.x % 9) {
    case 0: r = 5; break; case 1: r = 7; break; case 2: r = 1; break; case 3: r = 9; break;
    case 4: r = 11; break; case 5: r = 13; break; case 6: r = 77; break; default: r = 0;
  }
  out[threadIdx.x] = r;
}

__global__ void local_array(int* out) {
  int a[32], s = 0;
  for (int i = 0; i < 32; i++) a[(i * 7) % 32] = i * threadIdx.x;
  for (int i = 0; i < 32; i++) s += a[(i + threadIdx.x) % 32] * i;
  out[threadIdx.x] = s;
}

__global__ void counted_barriers(int* out) {
  out[threadIdx.x] = __syncthreads_count(threadIdx.x & 1) + 100 * __syncthreads_or(threadIdx.x == 5) +
                     1000 * __syncthreads_and(threadIdx.x < 1000);
}

__global__ void long_division(const long long* a, const long long* b, long long* out) {
  int i = threadIdx.x, n = blockDim.x;
  out[i] = a[i] / b[i];
  out[i + n] = a[i] % b[i];
  out[i + 2 * n] = __mul64hi(a[i], b[i]);
}

__device__ int lock = 0;
__global__ void locked(int* out) {
  if (threadIdx.x % 8 == 0) {
    while (atomicCAS(&lock, 0, 1) != 0) { }
    __threadfence();
    out[0] += 1;
    __threadfence();
    atomicExch(&lock, 0);
  }
}

__global__ void vectors(const float4* in, float4* out) {
  float4 v = in[threadIdx.x];
  v.x += 1;
  v.w *= 2;
  out[threadIdx.x] = v;
}

__global__ void warp_sum(const int* in, int* out) {
  int v = in[threadIdx.x];
  for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
  unsigned same = __match_any_sync(~0u, threadIdx.x / 4);
  if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = v + __popc(same) + __reduce_add_sync(1u, 7);
}

__global__ void fast_math(const float* x, float* out) {
  int i = threadIdx.x, n = blockDim.x;
  out[i] = __expf(x[i]);
  out[i + n] = __logf(x[i]);
  out[i + 2 * n] = __sinf(x[i]) + __cosf(x[i]);
  out[i + 3 * n] = powf(x[i], 2.3f);
  out[i + 4 * n] = erff(x[i]) + cbrtf(x[i]) + lgammaf(x[i]);
  out[i + 5 * n] = __fsqrt_rd(x[i]) + __frcp_ru(x[i]) + __fdividef(x[i], 3.0f) + rsqrtf(x[i]);
}

__global__ void tiled(const float* a, const float* b, float* c, int n) {
  __shared__ float sa[8][8], sb[8][9];
  int x = blockIdx.x * 8 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
  float total = 0;
  for (int t = 0; t < n; t += 8) {
    sa[threadIdx.y][threadIdx.x] = a[y * n + t + threadIdx.x];
    sb[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + x];
    __syncthreads();
    for (int k = 0; k < 8; k++) total += sa[threadIdx.y][k] * sb[k][threadIdx.x];
    __syncthreads();
  }
  c[y * n + x] = total;
}

__global__ void bitonic(long long* data) {
  extern __shared__ long long keys[];
  int t = threadIdx.x;
  keys[t] = data[t];
  __syncthreads();
  for (int k = 2; k <= blockDim.x; k *= 2)
    for (int j = k / 2; j > 0; j /= 2) {
      int other = t ^ j;
      if (other > t && (keys[t] > keys[other]) == ((t & k) == 0)) {
        long long v = keys[t]; keys[t] = keys[other]; keys[other] = v;
      }
      __syncthreads();
    }
  data[t] = keys[t];
}
}
template <class T> __global__ void doubled(T* a) { a[threadIdx.x] *= 2; }
template __global__ void doubled<double>(double*);
"""


@pytest.fixture(scope="module")
def ptx() -> str:
    return compile_cuda(SOURCE)


def run(
    ptx: str,
    name: str,
    threads: tuple[int, ...],
    *arguments: Any,
    grid: tuple[int, ...] = (1,),
    dynamic: int = 0,
) -> list[Array]:
    kernel = Kernel(ptx, name)
    arrays = [
        (kernel.arena.put(a), a) if isinstance(a, np.ndarray) else (None, a) for a in arguments
    ]
    packed = [value if address is None else np.uint64(address) for address, value in arrays]
    kernel.launch(grid, threads, *packed, dynamic=dynamic)
    return [kernel.arena.get(address, value) for address, value in arrays if address is not None]


def test_recursion(ptx: str) -> None:
    numbers = [0, 1]
    while len(numbers) < 12:
        numbers.append(numbers[-1] + numbers[-2])
    assert run(ptx, "recursion", (24,), np.zeros(24, "i4"))[0].tolist() == numbers * 2


def test_function_pointers(ptx: str) -> None:
    out = run(ptx, "pointers", (32,), np.zeros(32, "f4"))[0]
    assert out.tolist() == [t + 1 if t & 1 else 2 * t for t in range(32)]


def test_structures(ptx: str) -> None:
    layout = np.dtype([("a", "f8"), ("b", "i4", 5), ("c", "f4")], align=True)
    value = np.zeros(1, layout)
    value["a"], value["b"], value["c"] = 1.5, [1, 2, 3, 4, 5], 0.25
    assert run(ptx, "structure", (1,), value.tobytes(), np.int32(3), np.zeros(1))[0][0] == 5.75


def test_dynamic_shared_memory(ptx: str) -> None:
    assert run(ptx, "reverse", (64,), np.zeros(64), dynamic=512)[0].tolist() == list(
        range(63, -1, -1)
    )
    keys = np.random.default_rng(0).integers(-(2**60), 2**60, 128)
    np.testing.assert_array_equal(run(ptx, "bitonic", (128,), keys, dynamic=1024)[0], np.sort(keys))


def test_constants_and_switches(ptx: str) -> None:
    x = np.linspace(-1, 1, 32, dtype="f4")
    out = run(ptx, "polynomial", (32,), x, np.zeros(32, "f4"))[1]
    np.testing.assert_allclose(out, ((4 * x + 3) * x + 2) * x + 1, rtol=1e-5, atol=1e-6)
    assert run(ptx, "choose", (32,), np.zeros(32, "i4"))[0].tolist() == [
        (5, 7, 1, 9, 11, 13, 77, 0, 0)[t % 9] for t in range(32)
    ]


def test_local_arrays(ptx: str) -> None:
    expected = []
    for t in range(32):
        a = [0] * 32
        for i in range(32):
            a[i * 7 % 32] = i * t
        expected.append(sum(a[(i + t) % 32] * i for i in range(32)))
    assert run(ptx, "local_array", (32,), np.zeros(32, "i4"))[0].tolist() == expected


def test_barriers_that_count(ptx: str) -> None:
    assert (
        run(ptx, "counted_barriers", (64,), np.zeros(64, "i4"))[0].tolist()
        == [32 + 100 + 1000] * 64
    )


def test_long_division(ptx: str) -> None:
    rng = np.random.default_rng(4)
    a, b = rng.integers(-(2**62), 2**62, 64), rng.integers(-(2**40), 2**40, 64)
    out = run(ptx, "long_division", (64,), a, b, np.zeros(192, "i8"))[2]
    for n, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert out[n] == quotient
        assert out[n + 64] == x - quotient * y
        assert out[n + 128] == x * y >> 64


def test_locks_between_threads_and_blocks(ptx: str) -> None:
    assert run(ptx, "locked", (128,), np.zeros(1, "i4"), grid=(3,))[0][0] == 48


def test_vectors_and_templates(ptx: str) -> None:
    data = np.random.default_rng(1).random((32, 4)).astype("f4")
    expected = data.copy()
    expected[:, 0] += 1
    expected[:, 3] *= 2
    np.testing.assert_array_equal(
        run(ptx, "vectors", (32,), data, np.zeros_like(data))[1], expected
    )
    x = np.arange(32.0)
    np.testing.assert_array_equal(run(ptx, "_Z7doubledIdEvPT_", (32,), x)[0], 2 * x)


def test_warp_operations(ptx: str) -> None:
    data = np.arange(64, dtype="i4")
    assert run(ptx, "warp_sum", (64,), data, np.zeros(2, "i4"))[1].tolist() == [
        496 + 4 + 7,
        496 + 1024 + 4 + 7,
    ]


def test_fast_math(ptx: str) -> None:
    x = (np.random.default_rng(2).random(64) * 2 + 0.05).astype("f4")
    out = run(ptx, "fast_math", (64,), x, np.zeros(6 * 64, "f4"))[1].reshape(6, 64)
    v = x.astype("f8")
    np.testing.assert_allclose(out[0], np.exp(v), rtol=1e-6)
    np.testing.assert_allclose(out[1], np.log(v), rtol=2e-6, atol=1e-7)
    np.testing.assert_allclose(out[2], np.sin(v) + np.cos(v), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(out[3], v**2.3, rtol=1e-6)
    np.testing.assert_allclose(out[5], np.sqrt(v) + 1 / v + v / 3 + 1 / np.sqrt(v), rtol=1e-6)


def test_tiled_matrix_product(ptx: str) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((24, 24)).astype("f4"), rng.random((24, 24)).astype("f4")
    out = run(ptx, "tiled", (8, 8), a, b, np.zeros_like(a), np.int32(24), grid=(3, 3))[2]
    np.testing.assert_allclose(out, a @ b, rtol=1e-5)
