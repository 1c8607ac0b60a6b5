#include "rgpu_emu/device/exec/grid_state.h"

#include <algorithm>
#include <cstring>

namespace rgpu::emu {
namespace {

constexpr size_t kParamPadding = 64;  // keeps loads of up to 16 bytes at the end inside the buffer

}  // namespace

std::string InBrackets(const uint32_t (&at)[3]) {
  return "(" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + ", " + std::to_string(at[2]) +
         ")";
}

Grid::Grid(const Launch& launch, const RunnerOptions& options, PrintfFifo* printf,
           PrintfFifo* asserts, uint32_t id)
    : launch_(launch),
      options_(options),
      printf_(printf),
      asserts_(asserts),
      started_(std::chrono::steady_clock::now()) {
  params_.resize(launch.param_bytes + kParamPadding, 0);
  if (launch.param_bytes != 0) std::memcpy(params_.data(), launch.params, launch.param_bytes);
  threads_per_block_ = launch.block[0] * launch.block[1] * launch.block[2];
  blocks_ = uint64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  // Blocks are handed out in order, so that a block that waits for an earlier one always gets on.
  const uint64_t threads = std::max(1u, options.threads);
  if (launch.kernel->kind() == kKernelLoop)
    chunk_ = std::clamp<uint64_t>(blocks_ / (threads * 16), 1, 32);
  LaunchInfo& info = head_.info;
  info.band_base = options.band_base;
  info.band_bytes = options.band_bytes;
  info.globals = launch.globals;
  info.params = params_.data();
  info.runtime = Callbacks();
  static_assert(sizeof(stop_) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  info.stop = reinterpret_cast<const uint32_t*>(&stop_);
  info.functions = launch.kernel->functions().data();
  std::copy(launch.grid, launch.grid + 3, info.grid);
  std::copy(launch.block, launch.block + 3, info.block);
  info.dynamic_shared = launch.dynamic_shared;
  info.grid_id = id;
  info.sm_count = options.sm_count;
  head_.grid = this;
}

void Grid::Fail(FaultInfo fault) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fault_.result == CUDA_SUCCESS) fault_ = std::move(fault);
  stop_.store(1);
}

void Grid::FailAssert(const uint32_t (&block)[3], const uint32_t (&thread)[3]) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (fault_.result != CUDA_SUCCESS) return;
  fault_.result = CUDA_ERROR_ASSERT;
  std::copy(block, block + 3, fault_.block);
  fault_.message = "kernel " + std::string(launch_.name) + " failed in block " + InBrackets(block) +
                   ", thread " + InBrackets(thread) + ": a device-side assert failed";
  assert_end_.store(std::chrono::steady_clock::now() + kAssertTime);
}

void Grid::FailForMemory() {
  Fail({CUDA_ERROR_OUT_OF_MEMORY,
        0,
        {0, 0, 0},
        "kernel " + std::string(launch_.name) +
            " needs more shared or local memory than the device has left."});
}

bool Grid::Take(uint64_t* begin, uint64_t* end) {
  if (stopped()) return false;
  *begin = next_.fetch_add(chunk_, std::memory_order_relaxed);
  *end = std::min(*begin + chunk_, blocks_);
  return *begin < blocks_;
}

FaultInfo Grid::TakeFault() {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::move(fault_);
}

}  // namespace rgpu::emu
