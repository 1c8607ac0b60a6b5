// What goes on beside the commands: the two threads of a gate, and what they find.
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/log.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/gate.h"
#include "rgpu_server/executor/gate_times.h"

namespace rgpu::exec {

namespace {

using base::kMicrosecond;
using base::kMillisecond;
using base::kSecond;
using lease::Phase;

// A program that synchronises and goes on at once keeps the token over the gap: twice what giving
// it to another and back costs.
constexpr uint64_t kGraceNs = 400 * kMicrosecond;
// What has run for so long counts before it is complete.
constexpr uint64_t kLongKernelNs = 100 * kMillisecond;
// A loop that has been silent for this long is gone; it says something every 250 ms.
constexpr uint64_t kLoopSilentNs = 5 * kSecond;
// Work of a session that is spent has so long to stop.
constexpr uint64_t kStopNs = 10 * kSecond;

}  // namespace

void Gate::Look() {
  const lease::Grant before = grant_;
  grant_ = lease::ReadGrant(page_);
  const bool changed = !(before == grant_);
  roomy_ = 0;  // until it is known better
  const uint64_t now = base::NowNs();
  const uint64_t heartbeat = page_->token.heartbeat_ns.load(std::memory_order_relaxed);
  const bool silent = scheduled() && heartbeat + kLoopSilentNs < now;
  if (silent && !stale_) own_share_.Begin(now);
  stale_ = silent;
  Alive();
  CountWorkers();
  // A slice that was made longer ends another time.
  if (active_ != 0 && changed) gate().near_end_gen.store(0);
  if (executor_.sticky() != CUDA_SUCCESS) return Abandon();
  TakeBackLate();
  SetAside(now);
  if (active_ != 0 && in_flight_ == 0 && !stale_) GiveBack(now);
  // Who holds work back for a client that is away does not keep others from the device.
  if (gate().wants.load(std::memory_order_relaxed) != 0 && suspended()) {
    gate().wants.store(0);
    Signal();
  }
  // What is on the device unmarked would never be known to be complete.
  if (active_ != 0 && !alone() && !in_stream_) MarkRest();
  SetRoomy();
  // Another worker of the lease may have had the room; nobody tells this one that it has it back.
  const bool refused = active_ != 0 && in_flight_ == 0;
  if (changed || stale_ || refused) WakeHeld();
  // From now on the poller looks what is complete, and not the thread of the gate.
  if (changed && alone() && !points_.empty()) executor_.poller().Hurry();
}

// Nothing is on the device: gives the token back if it is over or no longer used.
void Gate::GiveBack(uint64_t now_ns) {
  const bool mine = grant_.running() && grant_.generation == active_;
  const uint64_t idle =
      now_ns - std::min(gate().drained_ns.load(std::memory_order_relaxed), now_ns);
  if (!mine || suspended()) {
    Leave(true);
  } else if (gate().near_end_gen.load(std::memory_order_relaxed) == active_) {
    gate().spent_gen.store(active_);
    Leave(true);
  } else if (grant_.phase == Phase::kSlice && used_ && !holding_ && awaiting_ == 0 &&
             idle >= kGraceNs) {
    Leave(true);
  }
}

// Whether work of a session that is spent is still on the device.  A driver that reports an error
// of a context has stopped what the context had there; other contexts of the session may have
// kernels that run on, and so has a session that ends for another reason than an error of the
// device.
bool Gate::StillRuns() {
  if (in_stream_) return true;  // no place to ask the driver
  MarkRest();
  return std::ranges::any_of(executor_.poller().streams(), [this](const auto& stream) {
    if (stream->outstanding.empty() || stream->context->dead) return false;
    if (executor_.MakeCurrent(*stream->context) != CUDA_SUCCESS) return false;
    const Point& last = *stream->outstanding.back().point;
    return !last.done && executor_.driver()->cuEventQuery(last.event) == CUDA_ERROR_NOT_READY;
  });
}

// The session is spent.  The device goes back when what the session had on it has stopped, and the
// time until then is charged.
void Gate::Abandon() {
  if (active_ != 0 && in_flight_ > 0) {
    const uint64_t now = base::NowNs();
    CountBusy(now);
    if (spent_since_ns_ == 0) spent_since_ns_ = now;
    if (StillRuns()) {
      if (now - spent_since_ns_ < kStopNs) return;
      // The end of the process is what stops everything on every driver.
      base::Log(base::Level::kError,
                "work of a session that has failed does not stop; it is ended");
      _exit(1);
    }
  }
  in_flight_ = 0;
  in_flight_ns_ = 0;
  ForgetAside();
  if (!in_stream_) points_.clear();  // the last to hold one calls the driver
  gate().in_flight_ns.store(0);
  gate().drained_ns.store(base::NowNs());
  Leave(true);
  WakeHeld();
}

void Gate::WakeThread() {
  if (!asleep_) return;
  asleep_ = false;
  work_.notify_one();
}

// What to wait for: each wake takes a processor from the device where that is emulated.  Behind the
// last of a slice that is all of it; else, since there is no room before, half of it.
const std::shared_ptr<Point>& Gate::NextPoint() const {
  if (alone()) return points_[points_.size() / 2];
  const bool over =
      grant_.generation != active_ || !grant_.running() ||
      page_->slots[slot_].gate.near_end_gen.load(std::memory_order_relaxed) == active_;
  return over ? points_.back() : points_[(points_.size() - 1) / 2];
}

// Waits for work on the device.  False: there is nothing to wait for, or no hurry.
bool Gate::WaitForWork(std::unique_lock<std::mutex>& lock) {
  const bool hurry = holding_ || awaiting_ > 0 || (active_ != 0 && !alone());
  // What a call has waited for by itself may not have been counted out yet.
  if (hurry && in_flight_ > 0) {
    executor_.poller().AdvanceAll();
    executor_.FlushNotices();
  }
  // Also behind one that stands still: what is done would be waited for again and again.
  std::erase_if(points_, [](const auto& point) { return point->done; });
  if (points_.empty() || !hurry || executor_.sticky() != CUDA_SUCCESS) return false;
  const std::shared_ptr<Point> point = NextPoint();
  lock.unlock();
  const CUresult result = executor_.driver()->cuEventSynchronize(point->event);
  const uint64_t done = base::NowNs();
  lock.lock();
  point->Finish(done, true);
  executor_.Check(result, 0);
  executor_.poller().AdvanceAll();
  // The poller may be asleep: nothing else would send the credits that the client waits for.
  executor_.FlushNotices();
  return true;
}

// The loop hears once a second of who holds the device, and counts no more than has passed since: a
// kernel counts while it runs, not at its end alone.
void Gate::CountRunning() {
  if (active_ == 0 || in_flight_ == 0 || base::NowNs() - counted_ns_ < kLongKernelNs) return;
  MarkRest();
  executor_.poller().AdvanceAll();
  executor_.FlushNotices();
  if (active_ != 0 && in_flight_ > 0) CountBusy(base::NowNs());
}

void Gate::WatchGrants() {
  std::unique_lock lock(executor_.mutex());
  for (;;) {
    CountRunning();
    Look();
    if (!alone() || holding_ || awaiting_ > 0) WakeThread();
    if (MayBeStuck() && patience_.Over(base::NowNs(), kernel_ns_)) WakeHeld();
    const uint32_t futex = grant_.futex;
    // Now and then it looks whether the loop still lives, and under a grant shows that it does.
    const bool often = holding_ || awaiting_ > 0 || active_ != 0;
    const bool stuck_soon = (holding_ || awaiting_ > 0) && active_ != 0;
    const bool spent = active_ != 0 && executor_.sticky() != CUDA_SUCCESS;
    const bool aside_soon = active_ != 0 && !alone() && HasStalled();
    const uint64_t sleep_ns = stuck_soon || spent ? kMillisecond
                              : aside_soon        ? kClientNs
                              : often             ? 50 * kMillisecond
                                                  : kSecond;
    lock.unlock();
    lease::WaitGrant(page_, futex, sleep_ns);
    lock.lock();
  }
}

void Gate::WatchDevice() {
  std::unique_lock lock(executor_.mutex());
  for (;;) {
    if (WaitForWork(lock)) continue;
    Look();
    asleep_ = true;
    const bool grace = grant_.phase == Phase::kSlice && active_ != 0 && in_flight_ == 0;
    if (grace) {
      work_.wait_for(lock, std::chrono::nanoseconds(kGraceNs), [this] { return !asleep_; });
    } else {
      work_.wait(lock, [this] { return !asleep_; });
    }
    asleep_ = false;
  }
}

}  // namespace rgpu::exec
