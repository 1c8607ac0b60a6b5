// The block runners of a device, and the memory that they may hold together.
//
// A running block needs windows for shared and local memory, and frames for its threads. All grids
// of the process share one limit of such memory, as the blocks on a GPU share its multiprocessors.
// A grid that does not fit waits until others have ended.
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

  // Returns a runner for blocks of `grid`, for the grid's own thread. Waits while others hold the
  // memory; grids get memory in order of arrival. The wait does not count as the grid's running
  // time. Sets `*waited` if it had to wait. Null: the grid was stopped, other threads have taken
  // all its blocks meanwhile, or it does not fit although nothing else runs.
  std::unique_ptr<BlockRunner> Await(Grid* grid, bool* waited);
  // The same for all blocks of a cooperative grid at once: it takes the memory of all or of none,
  // so that two grids never wait for each other. Empty: null above.
  std::vector<std::unique_ptr<BlockRunner>> AwaitAll(Grid* grid, bool* waited);
  // Await without waiting, for pool threads. Null: there is no room now.
  std::unique_ptr<BlockRunner> Try(const Grid& grid);
  void Return(std::unique_ptr<BlockRunner> runner);
  // Wakes waiting grids, because some may have been stopped.
  void Wake();

  // Bytes for all blocks that run at the same time, without local memory that contexts are charged
  // for.
  uint64_t base_bytes() const { return base_bytes_; }
  // Adds (takes away) local memory that a context is charged for.
  void AddRoom(uint64_t bytes);
  void TakeRoom(uint64_t bytes);
  uint64_t held() const;

 private:
  std::unique_ptr<BlockRunner> Take(const BlockMemory& need);
  bool TakeAll(const Grid& grid, std::vector<std::unique_ptr<BlockRunner>>* runners);
  void Put(std::unique_ptr<BlockRunner> runner);
  template <typename TakeFunction>
  bool AwaitTurn(Grid* grid, TakeFunction take);
  bool MakeRoom(uint64_t more);
  void Count(BlockRunner* runner, uint64_t bytes);

  const RunnerOptions& options_;
  mutable std::mutex mutex_;
  std::condition_variable freed_;
  const uint64_t base_bytes_;
  uint64_t limit_;
  uint64_t held_ = 0;  // by idle and busy runners together
  uint32_t busy_ = 0;
  uint32_t made_ = 0;
  std::vector<std::unique_ptr<BlockRunner>> idle_;
  std::list<const Grid*> waiting_;  // in order of arrival
};

}  // namespace rgpu::emu
