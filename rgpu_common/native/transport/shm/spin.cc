#include "rgpu_common/native/transport/shm/spin.h"

#include <sched.h>

#include <algorithm>

namespace rgpu::transport {
namespace {

// After this time, each step yields the processor to other threads, such as the device's.
constexpr uint64_t kYieldNs = 1'000;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

uint64_t Spin::Budget() {
  if (!allowed_.load(std::memory_order_relaxed)) return 0;
  const uint32_t rest = rest_.load(std::memory_order_relaxed);
  if (rest == 0) return budget_ns_.load(std::memory_order_relaxed);
  rest_.store(rest - 1, std::memory_order_relaxed);
  return 0;
}

void Spin::Found(uint64_t ns) {
  const uint64_t budget = budget_ns_.load(std::memory_order_relaxed);
  // Leave some room above the time that this wait took.
  const uint64_t wanted = std::min(kMostNs, 2 * ns + kLeastNs);
  if (wanted > budget) budget_ns_.store(wanted, std::memory_order_relaxed);
  next_rest_.store(kFirstRest, std::memory_order_relaxed);
}

void Spin::Slept(uint64_t ns, uint64_t budget_ns) {
  if (budget_ns == 0) return;
  if (ns < kShortWaitNs && budget_ns >= kMostNs) {
    // The event came as soon as this thread slept, so spinning held the other end up.
    const uint32_t rest = next_rest_.load(std::memory_order_relaxed);
    rest_.store(rest, std::memory_order_relaxed);
    next_rest_.store(std::min(2 * rest, kLongestRest), std::memory_order_relaxed);
    budget_ns_.store(kFirstNs, std::memory_order_relaxed);
    return;
  }
  const uint64_t next = ns < kShortWaitNs ? budget_ns * 2 : budget_ns / 2;
  budget_ns_.store(std::clamp(next, kLeastNs, kMostNs), std::memory_order_relaxed);
}

void SpinStep(uint64_t spent_ns) {
  if (spent_ns > kYieldNs) {
    sched_yield();
    return;
  }
  for (int i = 0; i < 8; ++i) Pause();
}

}  // namespace rgpu::transport
