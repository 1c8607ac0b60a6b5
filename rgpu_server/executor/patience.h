// How long the gate waits for a device on which nothing moves.
//
// A kernel may wait for what another stream is to do, and that may be among what is held back.  If
// nothing moves for longer than the work on the device should take, some of it is let through: one
// piece at a time at first, because more likely a long kernel runs that nobody knew yet, later
// twice as many each time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rgpu::exec {

class Patience {
 public:
  // Something moved on the device, or was put there: patience begins anew.
  void Moved(uint64_t now_ns) {
    since_ns_ = std::max(since_ns_, now_ns);
    left_ = times_ = 0;
    portion_ = 1;
  }
  // Work is held back from now on.
  void Begin(uint64_t now_ns) { since_ns_ = std::max(since_ns_, now_ns); }

  // Whether nothing has moved for too long, for pieces of about `piece_ns`.
  bool Over(uint64_t now_ns, uint64_t piece_ns) const {
    const uint64_t enough = std::clamp(piece_ns * 5 / 4, kLeastNs, kMostNs);
    return now_ns - std::min(since_ns_, now_ns) > enough;
  }
  // Whether one piece more may go.
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
  uint32_t left_ = 0;     // of the portion
  uint32_t portion_ = 1;  // pieces
  uint32_t times_ = 0;
};

}  // namespace rgpu::exec
