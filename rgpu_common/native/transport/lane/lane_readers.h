// LaneReaders: which threads read a lane's link, and which wait for an acknowledgement.
//
// When the window is full, a thread must read the acknowledgements: a reader if there is one, or
// else one of the threads that wait for room. The other threads wait until that thread has read.
#pragma once

#include <atomic>
#include <cstdint>

#include "rgpu_common/native/transport/lane/lane_link.h"
#include "rgpu_common/native/transport/lane/lane_options.h"
#include "rgpu_common/native/transport/lane/lane_progress.h"
#include "rgpu_common/native/transport/transport.h"

namespace rgpu::transport {

class LaneReaders {
 public:
  LaneReaders(const LaneOptions& options, const LaneProgress& progress, LaneLink& link)
      : options_(options), progress_(progress), link_(link) {}

  // Registers a reader that will block in the link. False: the thread must not block, because there
  // is other work to do on the link.
  bool BeginBlocking() {
    ++readers_;
    if (may_block()) return true;
    EndBlocking();
    return false;
  }
  void EndBlocking() {
    if (--readers_ == 0 && full_waiters_ > 0) link_.Notify();
  }
  // A thread that changes one of these conditions then checks readers_, or ends the link. Work that
  // comes due while a reader blocks waits for at most one slice (kRecvSliceMs).
  bool may_block() const {
    return link_.up() && !reading_acks_ && !progress_.output_due && !link_.displacing();
  }

  // Wakes the threads that wait for an acknowledgement, which has been read from `link`.
  void OnAcknowledgement(Connection& link) {
    if (awaiting_acks_) link.Wake();
    if (full_waiters_ > 0) link_.Notify();
  }

  // The functions below need the link's lock.
  // A reader begins to wait on the link, and ends.
  void BeginWait() { ++readers_; }
  void EndWait() {
    if (--readers_ == 0 && full_waiters_ > 0) link_.NotifyLocked();
  }
  // True if a thread reads only because the window is full.
  bool reading_acks() const { return reading_acks_; }
  // Makes the calling thread the one that reads acknowledgements. False: another thread reads.
  bool BeginReadingAcks();
  void EndReadingAcks();
  // Waits while another thread reads and the window has no room.
  void WaitForAck(LaneLink::Lock& lock, int timeout_ms);
  // Set while the thread that reads acknowledgements waits on the link: then Wake ends its wait.
  void set_awaiting_acks(bool awaiting) { awaiting_acks_ = awaiting; }

 private:
  const LaneOptions& options_;
  const LaneProgress& progress_;
  LaneLink& link_;
  std::atomic<uint32_t> readers_{0};        // threads that wait on the link to read
  std::atomic<bool> reading_acks_{false};   // a thread reads acks because the window is full
  std::atomic<bool> awaiting_acks_{false};  // that thread waits on the link
  std::atomic<uint32_t> full_waiters_{0};   // threads that wait for room in the window
};

}  // namespace rgpu::transport
