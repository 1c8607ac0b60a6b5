// One running grid, as used by the runner's threads and by callbacks of kernels.
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

class Gang;

class Grid {
 public:
  Grid(const Launch& launch, const RunnerOptions& options, PrintfFifo* printf, PrintfFifo* asserts,
       uint32_t id);
  Grid(const Grid&) = delete;
  Grid& operator=(const Grid&) = delete;

  // Returns the grid of a running block; kernels pass BlockInfo to every callback.
  static Grid* Of(const BlockInfo* block) {
    return reinterpret_cast<const Head*>(block->launch)->grid;
  }

  // Keeps the first failure and asks every thread that runs a block of the grid to stop.
  void Fail(FaultInfo fault);
  // Fails because of an assert. Threads run on for at most kAssertTime, so that each whose assert
  // fails prints its line. A thread may wait for one that has ended so.
  void FailAssert(const uint32_t (&block)[3], const uint32_t (&thread)[3]);
  static constexpr std::chrono::milliseconds kAssertTime{1000};
  // When the grid must have ended, because of an assert; the end of time before one has failed.
  std::chrono::steady_clock::time_point assert_end() const { return assert_end_.load(); }
  // Fails because there is no memory for a block.
  void FailForMemory();
  bool stopped() const { return stop_.load(std::memory_order_relaxed) != 0; }
  // Gives the caller the blocks [begin, end). Returns false if none is left.
  bool Take(uint64_t* begin, uint64_t* end);
  bool exhausted() const { return next_.load(std::memory_order_relaxed) >= blocks_; }
  FaultInfo TakeFault();

  const LaunchInfo* info() const { return &head_.info; }
  const Launch& launch() const { return launch_; }
  const Kernel& kernel() const { return *launch_.kernel; }
  const RunnerOptions& options() const { return options_; }
  PrintfFifo* printf() { return printf_; }
  PrintfFifo* asserts() { return asserts_; }
  uint64_t blocks() const { return blocks_; }
  uint32_t threads_per_block() const { return threads_per_block_; }
  uint32_t shared_bytes() const { return kernel().static_shared_bytes() + launch_.dynamic_shared; }
  // When the grid began to run; the time waiting for memory does not count.
  std::chrono::steady_clock::time_point started() const { return started_.load(); }
  void Pause() { started_ = std::chrono::steady_clock::time_point::max(); }
  void Resume() { started_ = std::chrono::steady_clock::now(); }

  // Sets the memory of a cooperative grid's barrier, before a block runs.
  void SetWorkspace(uint64_t address) { head_.info.grid_workspace = address; }

  // Guarded by the runner's mutex.
  unsigned workers = 0;  // pool threads that run blocks of the grid
  Gang* gang = nullptr;  // the running blocks of a cooperative grid

 private:
  // LaunchInfo comes first, so that Of() can find the grid from it.
  struct Head {
    LaunchInfo info;
    Grid* grid;
  };

  Head head_{};
  const Launch& launch_;
  const RunnerOptions& options_;
  PrintfFifo* const printf_;
  PrintfFifo* const asserts_;
  std::vector<uint8_t> params_;
  uint32_t threads_per_block_ = 0;
  uint64_t blocks_ = 0;
  uint64_t chunk_ = 1;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint32_t> stop_{0};
  std::atomic<std::chrono::steady_clock::time_point> started_;
  std::atomic<std::chrono::steady_clock::time_point> assert_end_{
      std::chrono::steady_clock::time_point::max()};
  std::mutex mutex_;
  FaultInfo fault_;
};

// A place in a grid or a block, for sentences: (x, y, z).
std::string InBrackets(const uint32_t (&at)[3]);

// Returns the functions that kernels may call; one table for all grids.
const KernelRuntime* Callbacks();

}  // namespace rgpu::emu
