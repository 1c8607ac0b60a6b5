// When work was complete, for those who learn of it late: the driver's clock counts on from a point
// whose time is known because somebody waited for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "rgpu_server/executor/points.h"

namespace rgpu::exec {

class DeviceClock {
 public:
  explicit DeviceClock(const Driver& driver) : driver_(driver) {}

  // When `point`, which is complete, was so, in ns of the host's monotonic clock: never later than
  // it was found to be.
  uint64_t DoneNs(const std::shared_ptr<Point>& point) {
    if (point->flags != kTimedEvent) return point->done_ns;
    float ms = 0;
    uint64_t at = point->done_ns;
    if (!point->awaited && Elapsed(*point, &ms)) {
      const double passed_ns = static_cast<double>(ms) * 1e6;
      at = std::min(at, known_ns_ + static_cast<uint64_t>(std::max(passed_ns, 0.0)));
      if (ms < kFarMs) return at;
    }
    known_ = point;
    known_ns_ = at;
    return at;
  }
  // The context of the known point may go.
  void Forget() { known_.reset(); }

 private:
  static constexpr float kFarMs = 500;  // beyond, a float of milliseconds is too coarse

  bool Elapsed(const Point& point, float* ms) const {
    return known_ != nullptr && known_->pool == point.pool &&
           driver_->cuEventElapsedTime_v2 != nullptr &&
           driver_->cuEventElapsedTime_v2(ms, known_->event, point.event) == CUDA_SUCCESS;
  }

  const Driver& driver_;
  std::shared_ptr<Point> known_;
  uint64_t known_ns_ = 0;
};

}  // namespace rgpu::exec
