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
#include <pthread.h>
#include <time.h>

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

// Far longer than anybody has the executor's lock who is not stuck.
constexpr long kLockNs = 200 * static_cast<long>(base::kMillisecond);

// What is behind places where streams have waited since before `ns`, and is not set aside yet.
Pieces Behind(const Stream& stream, uint64_t ns) {
  Load load;
  bool behind = false;
  for (const Marker& marker : stream.outstanding) {
    behind = behind || marker.behind.Stand(ns);
    if (behind) load.Add(marker.load);
  }
  behind = behind || stream.BehindSoFar(stream.unmarked_behind).Stand(ns);
  if (behind) load.Add(stream.unmarked_load);
  return {load.pieces() - std::min<uint64_t>(load.pieces(), stream.aside.count),
          load.ns() - std::min(load.ns(), stream.aside.ns)};
}

// What the first of what is set aside comes behind: stands there, or ends there.
template <typename F>
bool FirstAside(const Stream& stream, F is) {
  for (const Marker& marker : stream.outstanding) {
    if (!marker.load.empty()) return is(marker.behind);
  }
  return is(stream.BehindSoFar(stream.unmarked_behind));
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
  {
    const std::lock_guard lock(gate_.stalled_mutex_);
    place_.of->since_ns = 0;
    std::erase(gate_.stalled_, place_.of);
  }
  if (gate_.any_aside_.load()) gate_.AwaitReturn(*place_.of);
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
  any_aside_ = true;
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

void Gate::NoLongerAside(const Stream& stream) {
  std::erase_if(aside_streams_, [&](const auto& other) { return other.get() == &stream; });
  if (aside_streams_.empty()) any_aside_ = false;
}

// What was set aside is on the device from now on.
void Gate::TakeBack(Stream& stream, uint64_t now_ns) {
  if (stream.aside.count == 0) return;
  const Pieces back = std::exchange(stream.aside, {});
  aside_ -= back;
  NoLongerAside(stream);
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
  any_aside_ = false;
  aside_ = {};
}

bool Gate::HasStalled() {
  const std::lock_guard lock(stalled_mutex_);
  return !stalled_.empty();
}

bool Gate::MuchAside() const { return aside_.ns > kMuchAsideNs || aside_.count > kMuchAside; }

// It ran all the same: its stream went on without the lock.  How long it stood says nothing.
void Gate::RanAside(Stream& stream, uint64_t since_ns) {
  TakeBack(stream, since_ns);
  last_done_ns_ = std::max(last_done_ns_, since_ns);
}

// What was set aside and goes on as soon as a host function ends in which `stalls` waited; null:
// any.
std::vector<std::shared_ptr<Stream>> Gate::Returning(const StreamStalls* stalls) {
  const std::lock_guard lock(stalled_mutex_);
  std::vector<std::shared_ptr<Stream>> streams;
  const auto returns = [stalls](const Stalls& behind) {
    return (stalls == nullptr || behind.In(stalls)) && !behind.Stand(UINT64_MAX);
  };
  std::ranges::copy_if(aside_streams_, std::back_inserter(streams),
                       [&](const auto& stream) { return FirstAside(*stream, returns); });
  return streams;
}

void Gate::AwaitReturn(const StreamStalls& stalls) {
  const auto lock = WaitInStream([&] {
    uint64_t ns = 0;
    for (const auto& stream : Returning(&stalls)) ns += stream->aside.ns;
    return ns == 0 || AdmitsInStream(ns);
  });
  if (lock.owns_lock()) Return(&stalls);
}

// A host function may not call the driver.
bool Gate::AdmitsInStream(uint64_t ns) {
  in_stream_ = true;
  const bool admits = Admits(ns);
  in_stream_ = false;
  return admits;
}

// Waits in a stream's thread until `admits` says so with the executor's lock, or nothing keeps it:
// under a grant, what is on the device may be waiting for this stream.
//
// While it waits, a thread may get stuck in the driver with the executor's lock: its queue is full,
// of what waits for this stream.  So that lock is not waited for without an end, and neither is a
// condition under it.
std::unique_lock<std::mutex> Gate::WaitInStream(const std::function<bool()>& admits) {
  ++awaiting_;
  for (;;) {
    std::unique_lock lock = LockInStream();
    if (!lock.owns_lock()) break;
    if (!scheduled() || executor_.sticky() != CUDA_SUCCESS || (active_ != 0 && in_flight_ > 0) ||
        admits()) {
      --awaiting_;
      NoLongerHeld();
      return lock;
    }
    const uint64_t before = wakes_;
    lock.unlock();
    std::unique_lock wait(stalled_mutex_);
    in_stream_opened_.wait_for(wait, std::chrono::milliseconds(100),
                               [this, before] { return wakes_ != before; });
  }
  --awaiting_;
  late_ = true;
  return {};
}

std::unique_lock<std::mutex> Gate::LockInStream() {
  struct timespec until = {};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += kLockNs;
  until.tv_sec += until.tv_nsec / static_cast<long>(base::kSecond);
  until.tv_nsec %= static_cast<long>(base::kSecond);
  std::mutex& mutex = executor_.mutex();
  const int result = pthread_mutex_clocklock(mutex.native_handle(), CLOCK_MONOTONIC, &until);
  if (result != 0) return {};
  return {mutex, std::adopt_lock};
}

void Gate::WakeInStreams() {
  const std::lock_guard lock(stalled_mutex_);
  ++wakes_;
  in_stream_opened_.notify_all();
}

// Streams go on, with all that came behind them.
void Gate::Return(const StreamStalls* stalls) {
  const auto streams = Returning(stalls);
  if (streams.empty()) return;
  for (const auto& stream : streams) TakeBack(*stream, base::NowNs());
  // How long it waited says nothing about what is behind.
  last_done_ns_ = std::max(last_done_ns_, base::NowNs());
  WakeHeld();
}

// Those that went on without the lock.
void Gate::TakeBackLate() {
  if (awaiting_ > 0 || !late_.exchange(false)) return;
  NoLongerHeld();
  Return(nullptr);
}

}  // namespace rgpu::exec
