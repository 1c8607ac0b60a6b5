// The block runners of a device, and the memory that they may hold together.
//
// A block of a running grid needs windows for shared and local memory and frames for its threads.
// All grids of the process share one limit of such memory, as the blocks on a GPU share its
// multiprocessors: a grid that does not fit waits until others have ended.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_emu/device/exec/block_runner.h"

namespace rgpu::emu {

class Runners {
 public:
  explicit Runners(const RunnerOptions& options);

  // A runner for blocks of `grid`, for the grid's own thread.  Waits while others hold the memory;
  // grids get it in the order in which they came.  The waiting time is not the grid's running time.
  // `*waited`: whether it had to wait.  Null: the grid was stopped, other threads have taken all of
  // its blocks meanwhile, or it does not fit although nothing else runs.
  std::unique_ptr<BlockRunner> Await(Grid* grid, bool* waited);
  // The same for a thread that has other things to do.  Null: there is no room now.
  std::unique_ptr<BlockRunner> Try(const Grid& grid);
  void Return(std::unique_ptr<BlockRunner> runner);
  // Grids that wait may have been stopped.
  void Wake();

  // For all blocks that run at the same time, without their charged local memory.
  uint64_t base_bytes() const { return base_bytes_; }
  // Local memory that a context was charged for may be held beside the rest.
  void AddRoom(uint64_t bytes);
  void TakeRoom(uint64_t bytes);
  uint64_t held() const;

 private:
  std::unique_ptr<BlockRunner> Take(const BlockMemory& need);
  bool MakeRoom(uint64_t more);
  void Count(BlockRunner* runner, uint64_t bytes);

  const RunnerOptions& options_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  const uint64_t base_bytes_;
  uint64_t limit_;
  uint64_t held_ = 0;  // by idle and busy runners
  uint32_t busy_ = 0;
  uint32_t made_ = 0;
  std::vector<std::unique_ptr<BlockRunner>> idle_;
  std::list<const Grid*> waiting_;  // in the order in which they came
};

}  // namespace rgpu::emu
