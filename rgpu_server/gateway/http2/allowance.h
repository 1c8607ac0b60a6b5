// Limits how many frames without data a peer may send.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::gateway::http2 {

// A budget. A frame without data takes from it; time and data refill it.
class Allowance {
 public:
  // The largest budget, and its refill in a second, in frames.
  static constexpr double kMost = 4000;
  static constexpr double kASecond = 200;

  explicit Allowance(uint64_t now_ns) : at_ns_(now_ns) {}

  // Returns false if the budget is used up: the peer floods the gateway.
  bool Spend(double cost, uint64_t now_ns) {
    if (now_ns > at_ns_) {
      const double seconds = static_cast<double>(now_ns - at_ns_) / base::kSecond;
      left_ = std::min(kMost, left_ + seconds * kASecond);
      at_ns_ = now_ns;
    }
    left_ -= cost;
    return left_ >= 0;
  }

  // Refills for a frame with data, which causes window updates and answers.
  void Earn(size_t bytes) {
    left_ = std::min(kMost, left_ + 1 + static_cast<double>(bytes) / kEarningBytes);
  }

 private:
  static constexpr double kEarningBytes = 512;

  double left_ = kMost;
  uint64_t at_ns_;
};

}  // namespace rgpu::gateway::http2
