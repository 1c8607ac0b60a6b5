// The session's work on the device: how much there is, in which streams, how long it keeps the
// device busy, and which markers stand behind it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "rgpu_server/executor/gate/stream_work.h"

namespace rgpu::exec {

class DeviceWork {
 public:
  // What counts as on the device: what was issued, is not complete and is not set aside.
  const Pieces& in_flight() const { return in_flight_; }
  bool empty() const { return in_flight_.count == 0; }
  // Streams with work that no marker stands behind, oldest first.
  const std::vector<std::shared_ptr<StreamWork>>& unmarked() const { return unmarked_; }
  // Streams that have work on the device or set aside, in no order.
  const std::vector<std::shared_ptr<StreamWork>>& streams() const { return streams_; }

  void Issue(StreamWork& stream, const std::shared_ptr<Estimate>& kind, uint64_t units,
             uint64_t now_ns);
  void Mark(StreamWork& stream);
  uint64_t last_marker() const { return last_marker_; }
  // Takes the work up to the marker out of the stream's list.  Nothing: it was forgotten.
  std::optional<MarkedWork> Take(StreamWork& stream, uint64_t marker);
  // That work is complete.  `began_ns`: when it began on the device; 0: nobody knows.
  void Complete(const MarkedWork& work, uint64_t began_ns, uint64_t done_ns);
  // Takes all work of the stream out of its list.
  Load TakeAll(StreamWork& stream);

  // Work of the stream no longer counts as on the device; it counts again.
  void PutAside(const StreamWork& stream);
  void SetNothingInFlight() { in_flight_ = {}; }
  void TakeBack(const StreamWork& stream, const Pieces& pieces, uint64_t now_ns);
  // How long the work so far has taken is not known: the time until `now_ns` was spent waiting.
  void WaitedUntil(uint64_t now_ns) { last_done_ns_ = std::max(last_done_ns_, now_ns); }
  // The device did nothing from `from_ns` to `until_ns`, because all of the work waited.
  void StoodStill(uint64_t from_ns, uint64_t until_ns) {
    CountBusy(from_ns);
    counted_ns_ = std::max(counted_ns_, until_ns);
    WaitedUntil(until_ns);
  }
  // The session has failed: nothing of it is on the device.
  void Clear();

  // Charges the time since it was last charged, during which the device had work.
  void CountBusy(uint64_t until_ns);
  // What was charged since this was last asked.
  uint64_t TakeCharge() { return std::exchange(charge_ns_, 0); }
  uint64_t counted_ns() const { return counted_ns_; }
  // When the newest work that is known to be complete was complete.
  uint64_t last_done_ns() const { return last_done_ns_; }

  // Markers that a thread may wait for, oldest first; none stands behind work that is set aside.
  const std::deque<uint64_t>& watched() const { return watched_; }
  void Unwatch(uint64_t marker) { std::erase(watched_, marker); }

 private:
  void List(StreamWork& stream);
  void UnlistIfIdle(StreamWork& stream);
  void Unmarked(const StreamWork& stream);

  Pieces in_flight_;
  std::vector<std::shared_ptr<StreamWork>> unmarked_;
  std::vector<std::shared_ptr<StreamWork>> streams_;
  std::deque<uint64_t> watched_;
  uint64_t last_marker_ = 0;
  uint64_t counted_ns_ = 0;  // busy time is charged up to here
  uint64_t last_done_ns_ = 0;
  uint64_t charge_ns_ = 0;
};

}  // namespace rgpu::exec
