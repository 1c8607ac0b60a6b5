// Runs the threads of one block, which are coroutines, until all have ended.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/exec/kernel.h"

namespace rgpu::emu {

inline constexpr uint32_t kMaxBlockThreads = 1024;
inline constexpr uint32_t kWarpSize = 32;
inline constexpr uint32_t kMaxBarriers = 16;

enum class BlockEnd {
  kDone,
  kStopped,      // LaunchInfo::stop was set
  kDeadlock,     // every thread waits for another one that will not arrive
  kBadWarpOp,    // a thread names a membermask without itself, or an unknown operation or barrier
  kPartialWarp,  // a matrix instruction in a warp that has fewer than 32 live threads
  kWaiting,   // not the end: in the last pass all threads only waited for other blocks or the host
  kTurnOver,  // not the end: it has run as many passes as it may in one turn
};

struct ThreadFrames {
  uint8_t* base;
  uint64_t stride;
};

// Runs inside RunGuarded, so it owns nothing. Each block runner has one and reuses it.
class BlockScheduler {
 public:
  // `hostile`: 0, or a number that selects the order in which warps and threads run.
  BlockEnd Run(BlockInfo* block, const Kernel& kernel, ThreadFrames frames, uint32_t hostile);
  // The same in turns: Start once, and Continue until it returns an end. Between turns the block
  // may move to another thread.
  void Start(BlockInfo* block, const Kernel& kernel, ThreadFrames frames, uint32_t hostile);
  BlockEnd Continue(uint32_t passes);
  // The thread that runs, or that has just faulted.
  uint32_t running() const {
    return static_cast<uint32_t>(static_cast<uint64_t>(running_ - frames_.base) / frames_.stride);
  }
  // Lets other threads of the process run, after Continue returned kWaiting.
  void Idle() const;

 private:
  struct Warp {
    uint32_t live;
    uint32_t ready;
    uint32_t in_warp_op;
    uint32_t at_barrier;
    uint32_t at_activemask;
    uint32_t yielded;
    uint32_t together;
  };
  struct Barrier {
    uint32_t arrived;   // threads that have arrived (and, if they wait, have not left)
    uint32_t expected;  // 0: all live threads
    uint32_t popc;
    bool all;
    bool any;
  };

  BlockEnd RunBarOnly(BlockInfo* block, const Kernel& kernel, ThreadFrames frames);
  void Begin(BlockInfo* block, uint32_t hostile);
  void Resume(uint32_t thread);
  void RunWarp(uint32_t warp);
  void Suspended(uint32_t warp, uint32_t lane);
  void Ended(uint32_t warp, uint32_t lane);
  void Arrive(uint32_t warp, uint32_t lane, ThreadState* state);
  bool IsComplete(const Barrier& barrier) const;
  void Release(uint32_t id);
  static void AnswerActiveMask(Warp* warp, ThreadState* lanes);
  bool ResolveWarp(uint32_t warp);
  bool Complete(uint32_t group, ThreadState* lanes);
  bool WakeYielded();

  BlockInfo* block_ = nullptr;
  const uint8_t* running_ = nullptr;  // the frame of the running thread
  Kernel::ThreadFunction start_ = nullptr;
  ThreadFrames frames_{};
  uint32_t warps_ = 0;
  uint32_t live_ = 0;
  uint32_t first_warp_ = 0;
  bool reverse_ = false;
  bool bad_ = false;
  bool partial_ = false;
  bool progress_ = false;  // in this pass a thread did more than spin
  uint64_t sleep_ns_ = 0;  // the shortest sleep that a spinning thread asked for
  void* handles_[kMaxBlockThreads];
  Warp warp_[kMaxBlockThreads / kWarpSize];
  Barrier barriers_[kMaxBarriers];
};

}  // namespace rgpu::emu
