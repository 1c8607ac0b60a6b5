// LaneWait: how threads wait on a lane.
//
// Any number of threads that wait to read wait on the link itself. Threads that wait to write do
// the same while the window has room. When the window is full, LaneReaders says which thread reads
// the acknowledgements; the other threads wait for a change of the lane, as all threads do while
// there is no link.
#pragma once

#include <atomic>

#include "rgpu_common/native/transport/lane/lane_link.h"
#include "rgpu_common/native/transport/lane/lane_options.h"
#include "rgpu_common/native/transport/lane/lane_progress.h"
#include "rgpu_common/native/transport/lane/lane_readers.h"
#include "rgpu_common/native/transport/lane/lane_receiver.h"
#include "rgpu_common/native/transport/lane/lane_sender.h"

namespace rgpu::transport {

// Any thread may call it.
class LaneWait {
 public:
  LaneWait(const LaneOptions& options, const LaneProgress& progress, LaneLink& link,
           LaneReaders& readers, LaneReceiver& receiver, LaneSender& sender)
      : options_(options),
        progress_(progress),
        link_(link),
        readers_(readers),
        receiver_(receiver),
        sender_(sender) {}

  // As Connection::Wait and Wake, once the lane carries records.
  int Wait(int events, int timeout_ms);
  void Wake();
  // Blocks until the link is lost. False: the lane has ended.
  bool AwaitCut();

 private:
  // All of them release the lock while they wait.
  int WaitOnLink(LaneLink::Lock& lock, int events, int timeout_ms);
  int WaitAndFlush(LaneLink::Lock& lock, int wanted, int timeout_ms);
  void WaitForRoom(LaneLink::Lock& lock, int timeout_ms);
  bool has_room() const { return progress_.has_room(options_.window_bytes); }

  const LaneOptions& options_;
  const LaneProgress& progress_;
  LaneLink& link_;
  LaneReaders& readers_;
  LaneReceiver& receiver_;
  LaneSender& sender_;
  std::atomic<bool> woken_{false};
};

}  // namespace rgpu::transport
