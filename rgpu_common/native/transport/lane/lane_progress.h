// How far the two directions of a lane are. The two halves of a lane tell each other so.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rgpu::transport {

// Offsets are counted in bytes of the stream. Any thread may read them.
struct LaneProgress {
  // Of the stream that this end sends. Written with the sender's lock, except acked.
  std::atomic<uint64_t> sent{0};        // bytes that were sent
  std::atomic<uint64_t> promised{0};    // sent, and the rest of the record that was begun
  std::atomic<uint64_t> acked{0};       // that the peer acknowledged; with the receiver's lock
  std::atomic<bool> output_due{false};  // bytes wait for room in the link
  // Of the stream that this end receives.
  std::atomic<uint64_t> received{0};  // that the reader here took; with the receiver's lock
  std::atomic<uint64_t> told{0};      // the last acknowledgement sent; with the sender's lock
  std::atomic<bool> ack_due{false};   // both halves set it, the sender clears it

  // The bytes sent and not acknowledged. The peer may acknowledge more than `sent`: bytes of a
  // record that was begun on an earlier link.
  uint64_t unacked() const {
    const uint64_t acknowledged = acked;
    const uint64_t all = sent;
    return all - std::min(all, acknowledged);
  }
  // True if a sender can go on: the window has room, or a record that was begun must be finished.
  bool has_room(size_t window_bytes) const {
    return output_due || promised > sent || unacked() < window_bytes;
  }
};

}  // namespace rgpu::transport
