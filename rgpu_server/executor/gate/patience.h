// How long the gate waits for a device on which nothing progresses.
//
// A kernel on the device may wait for work of another stream, which the gate may be holding back.
// So if nothing progresses for longer than the work on the device should take, the gate lets some
// held work through. First one piece at a time, because a long unmeasured kernel is the more likely
// cause; later twice as many each time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rgpu::exec {

class Patience {
 public:
  // Called when work completed on the device or was put there: the waiting time starts again.
  void Moved(uint64_t now_ns) {
    since_ns_ = std::max(since_ns_, now_ns);
    left_ = times_ = 0;
    portion_ = 1;
  }
  // Called when work starts to be held back.
  void Begin(uint64_t now_ns) { since_ns_ = std::max(since_ns_, now_ns); }

  // Returns true if nothing has progressed for too long; `piece_ns` is the average time of a piece.
  bool Over(uint64_t now_ns, uint64_t piece_ns) const {
    const uint64_t enough = std::clamp(piece_ns * 5 / 4, kLeastNs, kMostNs);
    return now_ns - std::min(since_ns_, now_ns) > enough;
  }
  // Returns true if one more piece may go to the device.
  bool LetsThrough(uint64_t now_ns, uint64_t piece_ns) {
    if (left_ == 0) {
      if (!Over(now_ns, piece_ns)) return false;
      if (++times_ > kSingly) portion_ = std::min(portion_ * 2, kMostPieces);
      left_ = portion_;
      since_ns_ = now_ns;
    }
    --left_;
    return true;
  }

 private:
  static constexpr uint64_t kLeastNs = 50'000'000;
  static constexpr uint64_t kMostNs = 400'000'000;
  static constexpr uint32_t kSingly = 8;
  static constexpr uint32_t kMostPieces = 1024;

  uint64_t since_ns_ = 0;
  uint32_t left_ = 0;     // of the portion, in pieces
  uint32_t portion_ = 1;  // pieces
  uint32_t times_ = 0;
};

}  // namespace rgpu::exec
