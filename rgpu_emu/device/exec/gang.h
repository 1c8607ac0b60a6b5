// The blocks of a cooperative grid. They may wait for each other, so all of them run at the same
// time: each has memory of its own from the start, and threads run them in turns. One thread is
// enough for any number of blocks; more make it faster.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_emu/device/exec/block_runner.h"

namespace rgpu::emu {

// A grid's barrier, which cooperative groups find through %envreg1 and %envreg2.
struct GridWorkspace {
  uint32_t bytes;
  uint32_t barrier;  // the highest bit changes when all blocks have arrived
};

class Gang {
 public:
  // `runners`: one prepared runner for each block.
  Gang(Grid* grid, const std::vector<std::unique_ptr<BlockRunner>>& runners);
  // Runs blocks in turns until all have ended, or `*leave` is set (null: never). Several threads
  // may call it.
  void Run(const std::atomic<bool>* leave);
  // Returns true while another thread could help. Blocks of fewer threads than helpers would only
  // make them wait.
  bool WantsHelp();

 private:
  BlockRunner* Next(BlockRunner* last, bool ended, const std::atomic<bool>* leave);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<BlockRunner*> waiting_;  // blocks that no thread runs now
  size_t live_ = 0;
  size_t threads_ = 0;  // in Run
};

}  // namespace rgpu::emu
