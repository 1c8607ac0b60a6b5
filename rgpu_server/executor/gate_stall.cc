// Streams that wait for the client: the device is not kept for what is behind them.
//
// The network to a client may be slow, and a client may be stopped.  Its stream then stands still
// in a host function of ours, and so does all that was released to it after that.  Where that is
// all a session has on the device, it is set aside and the token goes back; before the host
// function ends, the token is asked for again.  So no kernel runs without it; the pieces of a
// long copy, which are charged before, do move.  What waits
// for such a stream by an event is not known here: while there is any, the token stays.
#include <algorithm>
#include <chrono>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/gate.h"
#include "rgpu_server/executor/gate_times.h"

namespace rgpu::exec {

namespace {

struct InFlight {
  uint64_t pieces = 0;
  uint64_t ns = 0;
};

// The host function runs, so what was before it in the stream is complete.
InFlight Behind(const Stream& stream) {
  Load load = stream.unmarked_load;
  for (const Marker& marker : stream.outstanding) load.Add(marker.load);
  return {load.pieces() - std::min<uint64_t>(load.pieces(), stream.stall.pieces),
          load.ns() - std::min(load.ns(), stream.stall.ns)};
}

}  // namespace

Gate::ClientWait::ClientWait(Gate& gate, const std::weak_ptr<Stream>& stream)
    : gate_(gate), stream_(stream.lock()) {
  if (stream_ == nullptr) return;
  const std::lock_guard lock(gate_.stalled_mutex_);
  stream_->stall.since_ns = base::NowNs();
  gate_.stalled_.push_back(stream_);
}

Gate::ClientWait::~ClientWait() {
  if (stream_ == nullptr) return;
  {
    const std::lock_guard lock(gate_.stalled_mutex_);
    std::erase(gate_.stalled_, stream_);
    if (!stream_->stall.aside) return;
  }
  gate_.AwaitReturn(*stream_);
}

// Sets aside what is behind streams that have waited for long, if that is all there is.
void Gate::SetAside(uint64_t now_ns) {
  if (active_ == 0 || in_flight_ == 0 || alone()) return;
  const std::lock_guard lock(stalled_mutex_);
  if (stalled_.empty()) return;
  const auto waits = [now_ns](const auto& stream) {
    return now_ns > stream->stall.since_ns + kClientNs;
  };
  uint64_t pieces = 0;
  for (const auto& stream : stalled_) pieces += waits(stream) ? Behind(*stream).pieces : 0;
  if (pieces < in_flight_) return;
  for (const auto& stream : stalled_) {
    if (!waits(stream)) continue;
    const InFlight behind = Behind(*stream);
    stream->stall.aside = true;
    stream->stall.pieces += behind.pieces;
    stream->stall.ns += behind.ns;
    aside_ += behind.pieces;
    aside_ns_ += behind.ns;
    // The thread of the gate has others to wait for.
    for (const Marker& marker : stream->outstanding) std::erase(points_, marker.point);
  }
  // It had the device until now, and kept it from others.
  CountBusy(now_ns);
  in_flight_ = in_flight_ns_ = 0;
  gate().in_flight_ns.store(0, std::memory_order_relaxed);
  gate().drained_ns.store(now_ns);
  // Unless it waits for one of these streams already.
  executor_.poller().Hurry();
}

// What was set aside is on the device from now on.
void Gate::TakeBack(Stream& stream, uint64_t now_ns) {
  Stall& stall = stream.stall;
  if (stall.pieces == 0) return;
  aside_ -= std::min(aside_, stall.pieces);
  aside_ns_ -= std::min(aside_ns_, stall.ns);
  if (in_flight_ == 0) counted_ns_ = now_ns;
  in_flight_ += stall.pieces;
  in_flight_ns_ += stall.ns;
  stall.pieces = stall.ns = 0;
  if (!stream.outstanding.empty()) points_.push_back(stream.outstanding.back().point);
  WakeThread();
  gate().in_flight_ns.store(in_flight_ns_, std::memory_order_relaxed);
  SetRoomy();
}

bool Gate::HasStalled() {
  const std::lock_guard lock(stalled_mutex_);
  return !stalled_.empty();
}

bool Gate::MuchAside() const { return aside_ns_ > kMuchAsideNs || aside_ > kMuchAside; }

// Under a grant, what is on the device may be waiting for this stream.
void Gate::AwaitReturn(Stream& stream) {
  std::unique_lock lock(executor_.mutex());
  ++awaiting_;
  while (scheduled() && executor_.sticky() == CUDA_SUCCESS && stream.stall.pieces > 0 &&
         !(active_ != 0 && in_flight_ > 0) && !AdmitsInStream(stream.stall.ns)) {
    opened_.wait_for(lock, std::chrono::milliseconds(100));
  }
  --awaiting_;
  NoLongerHeld();
  stream.stall.aside = false;
  TakeBack(stream, base::NowNs());
  // How long it waited says nothing about what is behind.
  last_done_ns_ = std::max(last_done_ns_, base::NowNs());
  WakeHeld();
}

}  // namespace rgpu::exec
