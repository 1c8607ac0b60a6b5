// Monotonic time and deadlines.
#pragma once

#include <cstdint>

namespace rgpu::base {

// Durations in nanoseconds.
inline constexpr uint64_t kMicrosecond = 1'000;
inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

// Nanoseconds of CLOCK_MONOTONIC.
uint64_t NowNs();

// The latest time at which a wait must end. Made from a timeout in milliseconds; -1 means no limit.
class Deadline {
 public:
  explicit Deadline(int timeout_ms)
      : at_ns_(timeout_ms < 0 ? UINT64_MAX
                              : NowNs() + static_cast<uint64_t>(timeout_ms) * kMillisecond) {}
  bool never() const { return at_ns_ == UINT64_MAX; }
  bool passed() const { return !never() && NowNs() >= at_ns_; }
  // The time left in milliseconds, rounded up, for poll(2). -1: no limit. 0: the deadline has
  // passed.
  int left_ms() const;

 private:
  uint64_t at_ns_;
};

}  // namespace rgpu::base
