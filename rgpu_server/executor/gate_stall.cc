// Streams that wait for the client: the device is not kept for what is behind them.
//
// The network to a client may be slow, and a client may be stopped.  Its stream then stands still
// in a host function of ours, and so does all that was released behind it: to the same stream, and
// to others that wait for its events, or that the device orders behind it (stalls.h).  Where that
// is all a session has on the device, it is set aside and the token goes back; before the host
// function ends, the token is asked for again.  So no kernel runs without it; the pieces of a long
// copy, which are charged before, do move.
//
// Streams also wait for each other through values in memory.  Of those nothing is known here: while
// there is work behind such a wait the token stays.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/gate.h"
#include "rgpu_server/executor/gate_times.h"

namespace rgpu::exec {

namespace {

// What is behind places where streams have waited since before `ns`, and is not set aside yet.
Pieces Behind(const Stream& stream, uint64_t ns) {
  Load load;
  bool behind = false;
  for (const Marker& marker : stream.outstanding) {
    behind = behind || marker.point->frontier.stalls.Stand(ns);
    if (behind) load.Add(marker.load);
  }
  if (behind || stream.frontier.stalls.Stand(ns)) load.Add(stream.unmarked_load);
  return {load.pieces() - std::min<uint64_t>(load.pieces(), stream.aside.count),
          load.ns() - std::min(load.ns(), stream.aside.ns)};
}

// Whether the first of what is set aside is still behind such a place.
bool StandsStill(const Stream& stream) {
  for (const Marker& marker : stream.outstanding) {
    if (!marker.load.empty()) return marker.point->frontier.stalls.Stand(UINT64_MAX);
  }
  return stream.frontier.stalls.Stand(UINT64_MAX);
}

}  // namespace

Gate::ClientWait::ClientWait(Gate& gate, const Stall& place, bool last)
    : gate_(gate), place_(place), last_(last) {
  const std::lock_guard lock(gate_.stalled_mutex_);
  place_.of->since_ns = base::NowNs();
  place_.of->in = place_.number;
  gate_.stalled_.push_back(place_.of);
}

Gate::ClientWait::~ClientWait() {
  bool aside = false;
  {
    const std::lock_guard lock(gate_.stalled_mutex_);
    place_.of->since_ns = 0;
    std::erase(gate_.stalled_, place_.of);
    aside = std::exchange(place_.of->aside, false);
  }
  if (aside) gate_.AwaitReturn();
  if (last_) place_.of->over.store(place_.number, std::memory_order_relaxed);
}

// Sets aside what is behind streams that have waited for long, if that is all there is.
void Gate::SetAside(uint64_t now_ns) {
  if (active_ == 0 || in_flight_ == 0 || alone()) return;
  const std::lock_guard lock(stalled_mutex_);
  const uint64_t since_ns = now_ns - kClientNs;
  const auto waits = [since_ns](const auto& stalls) { return stalls->since_ns < since_ns; };
  if (std::ranges::none_of(stalled_, waits)) return;
  std::vector<std::pair<std::shared_ptr<Stream>, Pieces>> found;
  uint64_t count = 0;
  const auto look = [&](const std::shared_ptr<Stream>& stream) {
    const Pieces behind = Behind(*stream, since_ns);
    if (behind.count == 0) return;
    count += behind.count;
    found.emplace_back(stream, behind);
  };
  std::ranges::for_each(executor_.poller().streams(), look);
  for (const auto& stream : unmarked_) {
    if (!stream->polled) look(stream);
  }
  if (count < in_flight_) return;
  for (const auto& stalls : stalled_) stalls->aside |= waits(stalls);
  for (const auto& [stream, behind] : found) PutAside(*stream, behind);
  // It had the device until now, and kept it from others.
  CountBusy(now_ns);
  in_flight_ = in_flight_ns_ = 0;
  gate().in_flight_ns.store(0, std::memory_order_relaxed);
  gate().drained_ns.store(now_ns);
  // Unless it waits for one of these streams already.
  executor_.poller().Hurry();
}

void Gate::PutAside(Stream& stream, const Pieces& pieces) {
  if (stream.aside.count == 0) aside_streams_.push_back(stream.shared_from_this());
  stream.aside += pieces;
  aside_ += pieces;
  // The thread of the gate has others to wait for.
  for (const Marker& marker : stream.outstanding) std::erase(points_, marker.point);
}

// Of work that is complete: what had been set aside, which is the older part of the stream's.
Pieces Gate::DropAside(Stream& stream, const Load& load) {
  const Pieces gone{std::min<uint64_t>(stream.aside.count, load.pieces()),
                    std::min(stream.aside.ns, load.ns())};
  if (gone.count == 0) return {};
  aside_ -= gone;
  stream.aside -= gone;
  if (stream.aside.count == 0) std::erase(aside_streams_, stream.shared_from_this());
  return gone;
}

// What was set aside is on the device from now on.
void Gate::TakeBack(Stream& stream, uint64_t now_ns) {
  if (stream.aside.count == 0) return;
  const Pieces back = std::exchange(stream.aside, {});
  aside_ -= back;
  std::erase(aside_streams_, stream.shared_from_this());
  if (in_flight_ == 0) counted_ns_ = now_ns;
  in_flight_ += back.count;
  in_flight_ns_ += back.ns;
  if (!stream.outstanding.empty()) points_.push_back(stream.outstanding.back().point);
  WakeThread();
  gate().in_flight_ns.store(in_flight_ns_, std::memory_order_relaxed);
  SetRoomy();
}

// The session is spent.
void Gate::ForgetAside() {
  for (const auto& stream : aside_streams_) stream->aside = {};
  aside_streams_.clear();
  aside_ = {};
}

bool Gate::HasStalled() {
  const std::lock_guard lock(stalled_mutex_);
  return !stalled_.empty();
}

bool Gate::MuchAside() const { return aside_.ns > kMuchAsideNs || aside_.count > kMuchAside; }

// What was set aside and goes on as soon as the host functions that wait for a turn end.
std::vector<std::shared_ptr<Stream>> Gate::Returning() {
  const std::lock_guard lock(stalled_mutex_);
  std::vector<std::shared_ptr<Stream>> streams;
  std::ranges::copy_if(aside_streams_, std::back_inserter(streams),
                       [](const auto& stream) { return !StandsStill(*stream); });
  return streams;
}

// Under a grant, what is on the device may be waiting for this stream.
void Gate::AwaitReturn() {
  std::unique_lock lock(executor_.mutex());
  ++awaiting_;
  while (scheduled() && executor_.sticky() == CUDA_SUCCESS && !(active_ != 0 && in_flight_ > 0)) {
    uint64_t ns = 0;
    for (const auto& stream : Returning()) ns += stream->aside.ns;
    if (ns == 0 || AdmitsInStream(ns)) break;
    opened_.wait_for(lock, std::chrono::milliseconds(100));
  }
  --awaiting_;
  NoLongerHeld();
  for (const auto& stream : Returning()) TakeBack(*stream, base::NowNs());
  // How long it waited says nothing about what is behind.
  last_done_ns_ = std::max(last_done_ns_, base::NowNs());
  WakeHeld();
}

}  // namespace rgpu::exec
