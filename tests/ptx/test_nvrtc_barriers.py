"""cuda::barrier, cuda::pipeline and memcpy_async as NVRTC compiles them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ptx.harness import Kernel
from ptx.nvrtc import compile_cuda

SOURCE = r"""
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;

extern "C" __global__ void turns(const int* in, int* out, int rounds) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int cells[2][256];
  auto block = cg::this_thread_block();
  if (threadIdx.x == 0) init(&bar, blockDim.x);
  block.sync();
  int v = in[threadIdx.x];
  for (int r = 0; r < rounds; ++r) {
    cells[r & 1][threadIdx.x] = v;
    bar.wait(bar.arrive());
    v = cells[r & 1][(threadIdx.x + 37) % blockDim.x] + 1;
  }
  out[threadIdx.x] = v;
}

extern "C" __global__ void leave(const int* in, int* out, int rounds) {
  __shared__ cuda::barrier<cuda::thread_scope_block> bar;
  __shared__ int sum;
  auto block = cg::this_thread_block();
  if (threadIdx.x == 0) { init(&bar, blockDim.x); sum = 0; }
  block.sync();
  if (threadIdx.x % 3 == 1) { bar.arrive_and_drop(); return; }
  for (int r = 0; r < rounds; ++r) {
    atomicAdd(&sum, in[threadIdx.x]);
    bar.arrive_and_wait();
    out[threadIdx.x] = sum;
    bar.arrive_and_wait();
  }
}

extern "C" __global__ void pipelined(const int* in, int* out, int batches) {
  __shared__ int stage[2][256];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> state;
  auto block = cg::this_thread_block();
  auto pipe = cuda::make_pipeline(block, &state);
  int n = blockDim.x, fetched = 0;
  for (int b = 0; b < batches; ++b) {
    for (; fetched < batches && fetched < b + 2; ++fetched) {
      pipe.producer_acquire();
      cuda::memcpy_async(block, stage[fetched % 2], in + fetched * n, sizeof(int) * n, pipe);
      pipe.producer_commit();
    }
    pipe.consumer_wait();
    out[b * n + threadIdx.x] = stage[b % 2][(threadIdx.x + 1) % n] * 2;
    pipe.consumer_release();
  }
}

extern "C" __global__ void ahead(const int* in, int* out, int) {
  __shared__ alignas(16) int stage[256];
  auto block = cg::this_thread_block();
  cg::memcpy_async(block, stage, in, sizeof(int) * blockDim.x);
  cg::wait(block);
  out[threadIdx.x] = stage[blockDim.x - 1 - threadIdx.x];
}
"""
DATA = np.random.default_rng(8).integers(0, 1000, 960).astype(np.int32)


@pytest.fixture(scope="module")
def text() -> str:
    return compile_cuda(SOURCE, headers=True)


def run(text: str, name: str, threads: int, number: int, size: int) -> list[Any]:
    made = Kernel(text, name)
    out = np.zeros(size, np.int32)
    place = made.arena.put(out)
    data = np.uint64(made.arena.put(DATA))
    made.launch((1,), (threads,), data, np.uint64(place), np.int32(number))
    found: list[Any] = made.arena.get(place, out).tolist()
    return found


@pytest.mark.parametrize("threads", [32, 96, 256])
def test_a_barrier_ends_each_round(text: str, threads: int) -> None:
    want = [int(DATA[(t + 6 * 37) % threads]) + 6 for t in range(threads)]
    assert run(text, "turns", threads, 6, threads) == want


def test_threads_may_leave_a_barrier(text: str) -> None:
    stay = [t for t in range(96) if t % 3 != 1]
    total = 4 * sum(int(DATA[t]) for t in stay)
    assert run(text, "leave", 96, 4, 96) == [total if t in stay else 0 for t in range(96)]


def test_a_pipeline_overlaps_copies(text: str) -> None:
    want = [int(DATA[b * 96 + (t + 1) % 96]) * 2 for b in range(10) for t in range(96)]
    assert run(text, "pipelined", 96, 10, 960) == want


def test_a_group_copies_asynchronously(text: str) -> None:
    assert run(text, "ahead", 160, 0, 160) == [int(v) for v in DATA[:160][::-1]]
