// The memory that one running block needs, and the running of blocks in it.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_emu/device/exec/block_scheduler.h"
#include "rgpu_emu/device/exec/fault_guard.h"
#include "rgpu_emu/device/exec/grid_state.h"

namespace rgpu::emu {

// Used by one thread at a time; kept for the next one.
class BlockRunner {
 public:
  BlockRunner(const RunnerOptions& options, uint32_t smid);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Makes room for blocks of this grid; false: there is no memory.
  bool Prepare(const Grid& grid);
  // Runs blocks of the prepared grid until none is left, it has failed, or `*leave` was set (null:
  // never). A block that faults fails the grid.
  void RunBlocks(Grid* grid, const std::atomic<bool>* leave);

 private:
  struct Window {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  bool Grow(Window* window, uint64_t bytes);
  bool GrowFrames(uint64_t bytes);
  void Loop();                  // guarded: owns nothing
  void RunOne(uint64_t index);  // guarded
  void Report(const Fault& fault);
  uint32_t NextHostile();

  WindowProvider* const windows_;
  Window shared_;
  Window local_;
  uint8_t* frames_ = nullptr;
  uint64_t frames_bytes_ = 0;
  std::unique_ptr<ThreadState[]> threads_;
  std::unique_ptr<BlockScheduler> scheduler_;
  BlockInfo block_{};
  Grid* grid_ = nullptr;
  const std::atomic<bool>* leave_ = nullptr;
  uint64_t hostile_;  // state of the generator for hostile timing
};

}  // namespace rgpu::emu
