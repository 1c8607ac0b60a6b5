"""Kernels as array libraries generate them, to measure how long the PTX compiler takes."""

from __future__ import annotations

import itertools

TYPES = ("float", "double", "int", "long long", "unsigned char", "short")
OPERATIONS = {
    "add": "a + b",
    "divide": "a / (b + (T)1)",
    "power": "(T)pow((double)a, (double)b)",
    "exp_log": "(T)(exp((double)a) + log1p((double)b))",
    "sin_atan": "(T)(sin((double)a) * atan2((double)b, 2.0))",
    "where": "a > b ? a * b : a - b",
}

ELEMENTWISE = """
typedef {type} T;
extern "C" __global__ void {name}(const T *x, const T *y, T *z, long long n,
                                  long long stride_x, long long stride_y) {{
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n;
       i += (long long)blockDim.x * gridDim.x) {{
    T a = x[i * stride_x], b = y[i * stride_y];
    z[i] = {operation};
  }}
}}
"""

REDUCTION = """
typedef {type} T;
extern "C" __global__ void {name}(const T *x, const T *y, T *z, long long n) {{
  __shared__ T part[256];
  T sum = 0;
  for (long long i = threadIdx.x; i < n; i += 256) {{
    T a = x[i], b = y[i];
    sum += {operation};
  }}
  part[threadIdx.x] = sum;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {{
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }}
  if (threadIdx.x == 0) z[0] = part[0];
}}
"""


def corpus() -> dict[str, str]:
    """CUDA C++ of each kernel, by its name."""
    sources = {}
    for (name, operation), kind in itertools.product(OPERATIONS.items(), TYPES):
        word = kind.replace(" ", "_")
        for form, text in (("map", ELEMENTWISE), ("reduce", REDUCTION)):
            kernel = f"{form}_{name}_{word}"
            sources[kernel] = text.format(type=kind, name=kernel, operation=operation)
    return sources
