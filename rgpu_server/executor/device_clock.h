// Tells when device work began and ended, although threads learn of it late. The driver's clock
// gives the time between two events; one event's time is known because a thread waited for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "rgpu_server/executor/points.h"

namespace rgpu::exec {

class DeviceClock {
 public:
  explicit DeviceClock(const Driver& driver) : driver_(driver) {}

  // Returns when `point`, which is complete, completed: in ns of the host's monotonic clock, and
  // never later than when a thread noticed it. A waiting thread wakes late by a varying time, so
  // the earliest time found for the driver's clock is kept.
  uint64_t DoneNs(const std::shared_ptr<Point>& point) {
    if (point->flags != kTimedEvent) return point->done_ns;
    float ms = 0;
    uint64_t at = point->done_ns;
    if (known_ != nullptr && Elapsed(*known_, *point, &ms)) {
      // The two clocks drift apart. A time that is too late is corrected by the next point that a
      // thread waits for; a time that is too early would stay wrong. Hence the drift is added.
      at = std::min(at, known_ns_ + Nanoseconds(ms * (1 + kDrift)));
      if (ms < kFarMs && (!point->awaited || at < point->done_ns)) return at;
    }
    known_ = point;
    known_ns_ = at;
    return at;
  }
  // Returns when the work between `before` and `behind` began on the device. `behind` completed at
  // `done_ns`. The result is never before `issued_ns`, and is `issued_ns` if the driver cannot
  // tell.
  uint64_t BeganNs(const Point& before, const Point& behind, uint64_t done_ns,
                   uint64_t issued_ns) const {
    float ms = 0;
    if (behind.flags != kTimedEvent || !Elapsed(before, behind, &ms)) return issued_ns;
    return std::max(done_ns - std::min(Nanoseconds(ms), done_ns), issued_ns);
  }
  // Called before the context of the known point goes.
  void Forget() { known_.reset(); }

 private:
  static constexpr float kFarMs = 500;  // for longer times a float of milliseconds is too coarse
  static constexpr float kDrift = 1e-4F;

  static uint64_t Nanoseconds(float ms) {
    return static_cast<uint64_t>(std::max(static_cast<double>(ms) * 1e6, 0.0));
  }
  bool Elapsed(const Point& from, const Point& to, float* ms) const {
    return from.pool == to.pool && driver_->cuEventElapsedTime_v2 != nullptr &&
           driver_->cuEventElapsedTime_v2(ms, from.event, to.event) == CUDA_SUCCESS;
  }

  const Driver& driver_;
  std::shared_ptr<Point> known_;
  uint64_t known_ns_ = 0;
};

}  // namespace rgpu::exec
