// What a lease allows itself while no token loop runs: its request, in portions.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rgpu::lease {

class OwnShare {
 public:
  void Begin(uint64_t now_ns) {
    credit_ns_ = 0;
    earned_until_ns_ = now_ns;
  }
  void Spend(uint64_t busy_ns) { credit_ns_ -= static_cast<int64_t>(busy_ns); }
  // Returns true if there is credit. The request is divided by `workers`, the number of the lease's
  // workers.
  bool HasCredit(uint64_t now_ns, uint64_t request_ppm, uint64_t workers) {
    const uint64_t passed = std::min(now_ns - std::min(earned_until_ns_, now_ns), kMostPassedNs);
    const uint64_t earned = passed * std::max(request_ppm, kLeastPpm) / 1'000'000 / workers;
    if (earned > 0) {
      credit_ns_ = std::min(credit_ns_ + static_cast<int64_t>(earned), kMostCreditNs);
      earned_until_ns_ = now_ns;
    }
    return credit_ns_ > 0;
  }

 private:
  static constexpr int64_t kMostCreditNs = 25'000'000;
  static constexpr uint64_t kMostPassedNs = 1'000'000'000;
  static constexpr uint64_t kLeastPpm = 5'000;  // so that a best-effort lease makes progress too

  int64_t credit_ns_ = 0;
  uint64_t earned_until_ns_ = 0;
};

}  // namespace rgpu::lease
