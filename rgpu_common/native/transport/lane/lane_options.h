// What a lane is told and what it tells: options, statistics, results.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rgpu_common/native/transport/lane/record.h"

namespace rgpu::transport {

struct LaneOptions {
  // The size of the retransmit window, which must be the same on both ends.
  size_t window_bytes = kWindowBytes;
  // After so many received bytes, an acknowledgement is sent even if there is nothing else to send.
  size_t ack_bytes = 1U << 20;
  // How long the lane may be without a link.
  int grace_ms = 10000;
  // No thread reads this lane: received bytes are dropped.
  bool discard = false;
  // The number of the first link: 0, or that of the RESUME that began the lane.
  uint32_t epoch = 0;
};

struct LaneStats {
  uint64_t cuts = 0;
  uint64_t resumes = 0;  // links attached after a cut
  uint64_t moves = 0;    // links attached in place of a link that still worked
  uint64_t resent_bytes = 0;
};

// Is told when the link is lost and when a new one is attached. The thread that finds out makes the
// call, and its callers may hold locks: the watcher must neither wait nor call the lane.
class LaneWatcher {
 public:
  virtual void OnCut() = 0;
  virtual void OnLink() = 0;

 protected:
  ~LaneWatcher() = default;
};

enum class AttachState : uint8_t {
  kAttached,
  kStale,     // the epoch is not newer than the one of the last link
  kMismatch,  // the peer claims to have received bytes that were never sent
  kGone,      // the lane has ended, or the new link broke at once
};

}  // namespace rgpu::transport
