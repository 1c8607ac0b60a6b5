// One running grid, as the runner's threads and the callbacks of kernels see it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "rgpu_emu/device/exec/grid.h"
#include "rgpu_emu/device/exec/printf_fifo.h"

namespace rgpu::emu {

class Grid {
 public:
  Grid(const Launch& launch, const RunnerOptions& options, PrintfFifo* printf, uint32_t id);
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  // The grid of a block that is running: kernels hand BlockInfo to every callback.
  static Grid* Of(const BlockInfo* block) {
    return reinterpret_cast<const Head*>(block->launch)->grid;
  }

  // The first failure is the grid's; every thread that runs a block of it is asked to stop.
  void Fail(FaultInfo fault);
  bool stopped() const { return stop_.load(std::memory_order_relaxed) != 0; }
  // Blocks [begin, end) for the caller to run; false when none is left.
  bool Take(uint64_t* begin, uint64_t* end);
  bool exhausted() const { return next_.load(std::memory_order_relaxed) >= blocks_; }
  FaultInfo TakeFault();

  const LaunchInfo* info() const { return &head_.info; }
  const Launch& launch() const { return launch_; }
  const Kernel& kernel() const { return *launch_.kernel; }
  const RunnerOptions& options() const { return options_; }
  PrintfFifo* printf() { return printf_; }
  uint64_t blocks() const { return blocks_; }
  uint32_t threads_per_block() const { return threads_per_block_; }
  uint32_t shared_bytes() const { return kernel().static_shared_bytes() + launch_.dynamic_shared; }
  // When it began to run; waiting for memory does not count.
  std::chrono::steady_clock::time_point started() const { return started_.load(); }
  void Pause() { started_ = std::chrono::steady_clock::time_point::max(); }
  void Resume() { started_ = std::chrono::steady_clock::now(); }

  unsigned workers = 0;  // pool threads in it; guarded by the runner's mutex

 private:
  // LaunchInfo stands first: Of() goes from it to the grid.
  struct Head {
    LaunchInfo info;
    Grid* grid;
  };

  Head head_{};
  const Launch& launch_;
  const RunnerOptions& options_;
  PrintfFifo* const printf_;
  std::vector<uint8_t> params_;
  uint32_t threads_per_block_ = 0;
  uint64_t blocks_ = 0;
  uint64_t chunk_ = 1;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint32_t> stop_{0};
  std::atomic<std::chrono::steady_clock::time_point> started_;
  std::mutex mutex_;
  FaultInfo fault_;
};

// The functions that kernels call, one table for all grids.
const KernelRuntime* Callbacks();

}  // namespace rgpu::emu
