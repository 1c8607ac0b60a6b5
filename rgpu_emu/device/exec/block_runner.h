// The memory that one running block needs, and the code that runs blocks in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "rgpu_emu/device/exec/block_scheduler.h"
#include "rgpu_emu/device/exec/fault_guard.h"
#include "rgpu_emu/device/exec/grid_state.h"

namespace rgpu::emu {

// Frames hold the registers of a block's threads. 64 KiB for each of 1,024 threads is far more than
// programs need; a launch that needs more is refused.
inline constexpr uint64_t kMaxFramesBytes = 64U << 20;
uint64_t FramesBytes(const Kernel& kernel, uint64_t threads);

// Bytes of memory that a runner holds, or that a block of a grid needs.
struct BlockMemory {
  uint64_t shared = 0;
  uint64_t local = 0;
  uint64_t frames = 0;  // including the states of the threads

  static BlockMemory NeededFor(const Kernel& kernel, uint64_t threads, uint64_t shared_bytes);
  uint64_t total() const { return shared + local + frames; }
  // Returns how many bytes are missing if `held` is there already.
  uint64_t Beyond(const BlockMemory& held) const;
};

// Runs blocks for one thread at a time; kept for the next thread.
class BlockRunner {
 public:
  BlockRunner(const RunnerOptions& options, uint32_t smid);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Makes room for blocks of this grid. Returns false if there is not enough memory.
  bool Prepare(const Grid& grid);
  BlockMemory held() const;
  // Frees all memory that the runner holds.
  void Release();
  // The bytes that the set of runners has counted for this runner (runners.h).
  uint64_t counted_bytes = 0;
  // Runs blocks of the prepared grid until none is left, the grid has failed, or `*leave` is set
  // (null: never). A block that faults fails the grid.
  void RunBlocks(Grid* grid, const std::atomic<bool>* leave);

  // Takes one block of the prepared grid, to be run by RunTurn.
  void Place(Grid* grid, uint64_t index);
  enum class Turn { kRan, kWaited, kEnded };
  // Runs the placed block for a while. kWaited: its threads only wait for other blocks or the host.
  Turn RunTurn();
  // Lets other threads of the process run, after a turn that only waited.
  void Idle() const { scheduler_->Idle(); }

 private:
  struct Window {
    uint64_t address = 0;
    uint64_t bytes = 0;
  };
  bool Grow(Window* window, uint64_t bytes);
  bool GrowFrames(uint64_t bytes);
  void ReleaseWindow(Window* window);
  void Loop();                  // runs guarded: owns nothing
  void RunOne(uint64_t index);  // runs guarded
  void TurnHere();              // runs guarded
  void SetIndex(uint64_t index);
  ThreadFrames Frames() const;
  void Report(const Fault& fault);
  std::string ThreadOf(const Fault& fault) const;
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
  bool started_ = false;  // the placed block
  Turn turn_ = Turn::kEnded;
  uint64_t hostile_;  // state of the random generator for hostile timing
};

}  // namespace rgpu::emu
