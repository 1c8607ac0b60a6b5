// A point in a stream for which streams of other sessions wait. No worker knows the other one, so
// this process stands between them: the source's worker tells it that the stream has come to the
// point, and it lets the waiting streams go on, which stand in host functions of ours.
#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace rgpu::shim {

class ControlLane;

class OrderPoint {
 public:
  // The source has come to the point. Or it never will, because its session has failed: no other
  // device waits for one that is lost.
  void Reach();
  // A stream has come to its wait, which is the worker's callback `callback`.
  void Wait(ControlLane* control, uint64_t callback);
  bool reached() const;

 private:
  mutable std::mutex mutex_;
  bool reached_ = false;
  std::vector<std::pair<ControlLane*, uint64_t>> waiting_;
};

}  // namespace rgpu::shim
