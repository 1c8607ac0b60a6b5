#include "rgpu_common/native/base/clock.h"

#include <time.h>

#include <climits>

namespace rgpu::base {

uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

uint64_t CoarseNowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec);
}

int Deadline::left_ms() const {
  if (never()) return -1;
  const uint64_t now = NowNs();
  if (now >= at_ns_) return 0;
  const uint64_t left = (at_ns_ - now + 999999U) / 1000000U;
  return left > INT_MAX ? INT_MAX : static_cast<int>(left);
}

}  // namespace rgpu::base
