#include "rgpu_common/native/transport/lane/lane_readers.h"

namespace rgpu::transport {

bool LaneReaders::BeginReadingAcks() {
  const bool first = !reading_acks_.exchange(true);
  if (first && readers_ == 0) return true;
  if (first) reading_acks_ = false;
  return false;
}

void LaneReaders::EndReadingAcks() {
  reading_acks_ = false;
  link_.NotifyLocked();
}

void LaneReaders::WaitForAck(LaneLink::Lock& lock, int timeout_ms) {
  ++full_waiters_;
  if (!progress_.has_room(options_.window_bytes) && (readers_ > 0 || reading_acks_)) {
    link_.WaitForChange(lock, timeout_ms);
  }
  --full_waiters_;
}

}  // namespace rgpu::transport
