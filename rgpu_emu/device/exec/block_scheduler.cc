#include "rgpu_emu/device/exec/block_scheduler.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <compare>
#include <cstring>
#include <iterator>
#include <utility>

#include "rgpu_emu/device/exec/matrix_ops.h"
#include "rgpu_emu/device/exec/warp_ops.h"

namespace rgpu::emu {
namespace {

using ResumeFunction = void (*)(void*);

// The first word of a coroutine's frame is where it resumes; null when it has ended.
inline ResumeFunction ResumePoint(void* handle) { return *static_cast<ResumeFunction*>(handle); }

inline bool Stopped(const BlockInfo* block) {
  return __atomic_load_n(block->launch->stop, __ATOMIC_RELAXED) != 0;
}

// By default Linux lets timers be 50 us late, so that wakeups coincide. For shorter sleeps that is
// more than nanosleep in a kernel may be late.
void SleepExactly() {
  thread_local bool exact = false;
  if (exact) return;
  exact = true;
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

}  // namespace

void BlockScheduler::Idle() const {
  constexpr uint64_t kMostNs = 1'000'000;  // the most that nanosleep in a kernel accepts
  if (sleep_ns_ == 0) {
    sched_yield();
    return;
  }
  SleepExactly();
  const struct timespec time = {0, static_cast<long>(std::min(sleep_ns_, kMostNs))};
  nanosleep(&time, nullptr);
}

BlockEnd BlockScheduler::Run(BlockInfo* block, const Kernel& kernel, ThreadFrames frames,
                             uint32_t hostile) {
  if (kernel.bar_only() && hostile == 0) return RunBarOnly(block, kernel, frames);
  Start(block, kernel, frames, hostile);
  while (true) {
    const BlockEnd end = Continue(~0u);
    if (end == BlockEnd::kWaiting) {
      Idle();
    } else if (end != BlockEnd::kTurnOver) {
      return end;
    }
  }
}

void BlockScheduler::Start(BlockInfo* block, const Kernel& kernel, ThreadFrames frames,
                           uint32_t hostile) {
  block_ = block;
  start_ = kernel.thread_function();
  frames_ = frames;
  Begin(block, hostile);
}

BlockEnd BlockScheduler::RunBarOnly(BlockInfo* block, const Kernel& kernel, ThreadFrames frames) {
  const Kernel::ThreadFunction start = kernel.thread_function();
  uint32_t count = block->thread_count;
  frames_ = frames;
  for (uint32_t i = 0; i < count; ++i) {
    uint8_t* const frame = frames.base + i * frames.stride;
    running_ = frame;
    handles_[i] = start(block, i, frame);
  }
  while (count != 0) {
    if (Stopped(block)) return BlockEnd::kStopped;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; ++i) {
      void* handle = handles_[i];
      const ResumeFunction resume = ResumePoint(handle);
      if (resume == nullptr) continue;
      handles_[kept++] = handle;
      running_ = static_cast<const uint8_t*>(handle);
      resume(handle);
    }
    count = kept;
  }
  return BlockEnd::kDone;
}

void BlockScheduler::Begin(BlockInfo* block, uint32_t hostile) {
  live_ = block->thread_count;
  warps_ = (live_ + kWarpSize - 1) / kWarpSize;
  first_warp_ = (hostile >> 1) % warps_;
  reverse_ = (hostile & 1) != 0;
  bad_ = partial_ = false;
  std::memset(handles_, 0, live_ * sizeof(void*));
  std::memset(barriers_, 0, sizeof(barriers_));
  for (uint32_t w = 0; w < warps_; ++w) {
    const uint32_t lanes = std::min(kWarpSize, live_ - w * kWarpSize);
    const uint32_t all = lanes == kWarpSize ? ~0u : (1u << lanes) - 1;
    warp_[w] = {all, all, 0, 0, 0, 0, 0};
  }
}

void BlockScheduler::Resume(uint32_t thread) {
  void*& handle = handles_[thread];
  uint8_t* const frame = frames_.base + thread * frames_.stride;
  running_ = frame;
  if (handle == nullptr) {
    handle = start_(block_, thread, frame);
  } else {
    ResumePoint(handle)(handle);
  }
}

BlockEnd BlockScheduler::Continue(uint32_t passes) {
  while (live_ != 0) {
    if (Stopped(block_)) return BlockEnd::kStopped;
    if (passes-- == 0) return BlockEnd::kTurnOver;
    bool ran = false;
    progress_ = false;
    sleep_ns_ = ~uint64_t{0};
    for (uint32_t i = 0; i < warps_; ++i) {
      const uint32_t w = i + first_warp_ < warps_ ? i + first_warp_ : i + first_warp_ - warps_;
      const bool ready = warp_[w].ready != 0 || ResolveWarp(w);
      if (ready) RunWarp(w);
      if (bad_) return partial_ ? BlockEnd::kPartialWarp : BlockEnd::kBadWarpOp;
      ran = ran || ready;
    }
    if (!WakeYielded() && !ran && live_ != 0) return BlockEnd::kDeadlock;
    if (!progress_ && live_ != 0) return BlockEnd::kWaiting;
  }
  return BlockEnd::kDone;
}

// Runs one warp as far as it gets, because its frames are then in the cache. The number of rounds
// is limited, because a loop of warp operations may wait for another warp.
void BlockScheduler::RunWarp(uint32_t w) {
  constexpr uint32_t kRounds = 256;
  Warp& warp = warp_[w];
  uint32_t rounds = 0;
  do {
    while (warp.ready != 0 && !bad_) {
      const auto lane = static_cast<uint32_t>(reverse_ ? 31 - std::countl_zero(warp.ready)
                                                       : std::countr_zero(warp.ready));
      warp.ready &= ~(1u << lane);
      const uint32_t thread = w * kWarpSize + lane;
      Resume(thread);
      if (ResumePoint(handles_[thread]) == nullptr) {
        Ended(w, lane);
      } else {
        Suspended(w, lane);
      }
    }
  } while (!bad_ && ++rounds < kRounds && ResolveWarp(w));
}

void BlockScheduler::Suspended(uint32_t w, uint32_t lane) {
  Warp& warp = warp_[w];
  const uint32_t bit = 1u << lane;
  ThreadState* state = &block_->threads[w * kWarpSize + lane];
  const uint32_t op = state->op;
  progress_ = progress_ || (op != kOpYield && op != kOpTogether);
  if (IsWarpOp(op)) {
    warp.in_warp_op |= bit;
    bad_ = bad_ || (state->mask & bit) == 0;
  } else if (IsBarrierOp(op)) {
    Arrive(w, lane, state);
  } else if (op == kOpActiveMask) {
    warp.at_activemask |= bit;
  } else if (op == kOpTogether) {
    warp.together |= bit;
    sleep_ns_ = 0;
  } else if (op == kOpYield) {
    warp.yielded |= bit;
    sleep_ns_ = std::min(sleep_ns_, state->value);
  } else {
    bad_ = true;
  }
}

// At a barrier for the whole block, threads that have ended count as arrived.
void BlockScheduler::Ended(uint32_t w, uint32_t lane) {
  warp_[w].live &= ~(1u << lane);
  --live_;
  progress_ = true;
  for (uint32_t id = 0; id < kMaxBarriers; ++id) {
    if (barriers_[id].arrived != 0 && IsComplete(barriers_[id])) Release(id);
  }
}

bool BlockScheduler::IsComplete(const Barrier& barrier) const {
  return barrier.arrived >= (barrier.expected != 0 ? barrier.expected : live_);
}

void BlockScheduler::Arrive(uint32_t w, uint32_t lane, ThreadState* state) {
  const uint32_t id = state->a;
  if (id >= kMaxBarriers || state->b > kMaxBlockThreads) {
    bad_ = true;
    return;
  }
  Barrier& barrier = barriers_[id];
  if (barrier.arrived == 0) barrier = {0, state->b, 0, true, false};
  ++barrier.arrived;
  const bool predicate = state->value != 0;
  barrier.popc += predicate ? 1 : 0;
  barrier.all = barrier.all && predicate;
  barrier.any = barrier.any || predicate;
  if (state->op == kOpBarArrive) {
    warp_[w].ready |= 1u << lane;
  } else {
    warp_[w].at_barrier |= 1u << lane;
  }
  if (IsComplete(barrier)) Release(id);
}

void BlockScheduler::Release(uint32_t id) {
  const Barrier barrier = barriers_[id];
  barriers_[id] = {};
  for (uint32_t w = 0; w < warps_; ++w) {
    Warp& warp = warp_[w];
    for (uint32_t rest = warp.at_barrier; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
      ThreadState& state = block_->threads[w * kWarpSize + lane];
      if (state.a != id) continue;
      warp.at_barrier &= ~(1u << lane);
      warp.ready |= 1u << lane;
      if (state.op == kOpBarRedPopc) state.result = barrier.popc;
      if (state.op == kOpBarRedAnd) state.result = barrier.all ? 1 : 0;
      if (state.op == kOpBarRedOr) state.result = barrier.any ? 1 : 0;
    }
  }
}

// Answers the threads at the lowest place. Threads at other places wait, because the answered ones
// may reach them and join them, as on a GPU.
void BlockScheduler::AnswerActiveMask(Warp* warp, ThreadState* lanes) {
  const auto compare = [&](uint32_t a, uint32_t b) {
    const auto order = std::lexicographical_compare_three_way(
        std::begin(lanes[a].place), std::end(lanes[a].place), std::begin(lanes[b].place),
        std::end(lanes[b].place));
    return order != 0 ? order : lanes[a].a <=> lanes[b].a;
  };
  auto lowest = static_cast<uint32_t>(std::countr_zero(warp->at_activemask));
  uint32_t together = 0;
  for (uint32_t rest = warp->at_activemask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const auto order = compare(lane, lowest);
    if (order > 0) continue;
    if (order < 0) together = 0;
    lowest = lane;
    together |= 1u << lane;
  }
  for (uint32_t rest = together; rest != 0; rest &= rest - 1)
    lanes[std::countr_zero(rest)].result = together;
  warp->ready |= together;
  warp->at_activemask &= ~together;
}

// Computes a warp operation for the threads of `group`. Returns false, with the reason in bad_, if
// it cannot be computed.
bool BlockScheduler::Complete(uint32_t group, ThreadState* lanes) {
  const uint32_t op = lanes[std::countr_zero(group)].op;
  if (op != kOpMatrix) {
    ResolveWarpOp(op, group, lanes);
    return true;
  }
  partial_ = group != ~0u;
  bad_ = partial_ || !ResolveMatrix(*block_, lanes);
  return !bad_;
}

// Completes each warp operation that every live thread of its mask has reached. If nothing else in
// the warp can run, threads that have made a volatile access go on together, else activemask is
// answered.
bool BlockScheduler::ResolveWarp(uint32_t w) {
  Warp& warp = warp_[w];
  ThreadState* lanes = &block_->threads[size_t{w} * kWarpSize];
  for (uint32_t rest = warp.in_warp_op; rest != 0;) {
    const ThreadState& first = lanes[std::countr_zero(rest)];
    uint32_t group = 0;
    for (uint32_t others = rest; others != 0; others &= others - 1) {
      const auto lane = static_cast<uint32_t>(std::countr_zero(others));
      const bool same = lanes[lane].op == first.op && lanes[lane].mask == first.mask &&
                        (first.op != kOpMatrix || lanes[lane].a == first.a);
      group |= static_cast<uint32_t>(same) << lane;
    }
    rest &= ~group;
    if ((first.mask & warp.live & ~group) != 0) continue;
    if (!Complete(group, lanes)) return false;
    warp.in_warp_op &= ~group;
    warp.ready |= group;
  }
  if (warp.ready == 0) warp.ready = std::exchange(warp.together, 0);
  if (warp.ready == 0 && warp.at_activemask != 0 && warp.yielded == 0)
    AnswerActiveMask(&warp, lanes);
  return warp.ready != 0;
}

// At the end of a pass, spinning threads may run again, and activemask is answered, which waited
// for them.
bool BlockScheduler::WakeYielded() {
  bool any = false;
  for (uint32_t w = 0; w < warps_; ++w) {
    Warp& warp = warp_[w];
    if (warp.ready == 0 && warp.at_activemask != 0)
      AnswerActiveMask(&warp, &block_->threads[size_t{w} * kWarpSize]);
    warp.ready |= warp.yielded;
    warp.yielded = 0;
    any = any || warp.ready != 0;
  }
  return any;
}

}  // namespace rgpu::emu
