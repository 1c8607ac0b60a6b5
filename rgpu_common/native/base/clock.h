// Monotonic time and deadlines.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rgpu::base {

// Durations in nanoseconds.
inline constexpr uint64_t kMicrosecond = 1'000;
inline constexpr uint64_t kMillisecond = 1'000'000;
inline constexpr uint64_t kSecond = 1'000'000'000;

// Nanoseconds of CLOCK_MONOTONIC.
uint64_t NowNs();
// The same at the last tick, some milliseconds ago at most. It costs less.
uint64_t CoarseNowNs();

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

// How long a loop has waited for another process, as far as this process ran: each pass counts for
// at most kMostPassNs. A machine that stands still for a while, or that has too few processors, so
// gives the other process as many chances as a quiet one. Never more than kMostNs are waited.
class WaitedTime {
 public:
  static constexpr uint64_t kMostPassNs = kMillisecond;
  static constexpr uint64_t kMostNs = 5 * kSecond;

  explicit WaitedTime(uint64_t now_ns) : begun_ns_(now_ns), seen_ns_(now_ns) {}
  // Called once in each pass. Returns true when `patience_ns` have been waited.
  bool Over(uint64_t now_ns, uint64_t patience_ns) {
    counted_ns_ += std::min(now_ns - seen_ns_, kMostPassNs);
    seen_ns_ = now_ns;
    return counted_ns_ >= patience_ns || now_ns - begun_ns_ >= kMostNs;
  }

 private:
  uint64_t begun_ns_;
  uint64_t seen_ns_;
  uint64_t counted_ns_ = 0;
};

}  // namespace rgpu::base
