// When work began and was complete, for those who learn of it late: the driver's clock counts on
// from a point whose time is known because somebody waited for it.
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
  // it was found to be.  Who waits wakes late, now more and now less, so that the earliest of what
  // has been found holds.
  uint64_t DoneNs(const std::shared_ptr<Point>& point) {
    if (point->flags != kTimedEvent) return point->done_ns;
    float ms = 0;
    uint64_t at = point->done_ns;
    if (known_ != nullptr && Elapsed(*known_, *point, &ms)) {
      // The two clocks do not run alike.  What is too late is put right by the next who waits, what
      // is too early never.
      at = std::min(at, known_ns_ + Nanoseconds(ms * (1 + kDrift)));
      if (ms < kFarMs && (!point->awaited || at < point->done_ns)) return at;
    }
    known_ = point;
    known_ns_ = at;
    return at;
  }
  // When work between two points began, of which the second was complete at `done_ns`: not before
  // `issued_ns`, which it is where the driver does not know.
  uint64_t BeganNs(const Point& before, const Point& behind, uint64_t done_ns,
                   uint64_t issued_ns) const {
    float ms = 0;
    if (behind.flags != kTimedEvent || !Elapsed(before, behind, &ms)) return issued_ns;
    return std::max(done_ns - std::min(Nanoseconds(ms), done_ns), issued_ns);
  }
  // The context of the known point may go.
  void Forget() { known_.reset(); }

 private:
  static constexpr float kFarMs = 500;  // beyond, a float of milliseconds is too coarse
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
