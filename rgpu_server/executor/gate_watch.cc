// The two threads of the gate.
#include <algorithm>
#include <chrono>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/gate.h"
#include "rgpu_server/executor/gate/limits.h"

namespace rgpu::exec {

// Whether work of a session that has failed is still on the device.  A driver that reports an error
// of a context has stopped the context's work.  Other contexts of the session may have kernels that
// run on.  If the session failed for another reason, all of its kernels may run on.
bool Gate::WorkStillRuns() {
  MarkRest();
  return std::ranges::any_of(executor_.poller().streams(), [this](const auto& stream) {
    if (stream->outstanding.empty() || stream->context->dead) return false;
    if (executor_.MakeCurrent(*stream->context) != CUDA_SUCCESS) return false;
    const Point& last = *stream->outstanding.back().point;
    return !last.done && executor_.driver()->cuEventQuery(last.event) == CUDA_ERROR_NOT_READY;
  });
}

void Gate::WakeThread() {
  if (!asleep_) return;
  asleep_ = false;
  work_.notify_one();
}

// A marker behind one that waits for a delivery may be done and not complete.  Nobody waits for its
// event again.
void Gate::ForgetDonePoints() {
  std::erase_if(points_, [this](const auto& entry) {
    if (entry.second->done) Tell(event::Awaited{entry.first}, 0);
    return entry.second->done;
  });
}

// Waits for work on the device.  False: there is none to wait for, or nobody is in a hurry.
bool Gate::WaitForWork(std::unique_lock<std::mutex>& lock) {
  // A call may have waited for work by itself, so that it is complete and nobody has counted it.
  if (state_.hurry() && !state_.idle()) {
    executor_.poller().AdvanceAll();
    executor_.FlushNotices();
  }
  ForgetDonePoints();
  const auto marker = state_.ToWatch();
  if (!marker) return false;
  const auto found = std::ranges::find(points_, *marker, [](const auto& e) { return e.first; });
  if (found == points_.end()) {
    Tell(event::Awaited{*marker});
    return true;
  }
  const std::shared_ptr<Point> point = found->second;
  lock.unlock();
  const CUresult result = executor_.driver()->cuEventSynchronize(point->event);
  const uint64_t done = base::NowNs();
  lock.lock();
  point->Finish(done, true);
  executor_.Check(result, 0);
  executor_.poller().AdvanceAll();
  // The poller may be asleep: nobody else would send the credits that the client waits for.
  executor_.FlushNotices();
  return true;
}

// The token loop hears once a second how much of the device's time the session has used.  A kernel
// counts while it runs, not only at its end, or the loop would count less time than has passed.
void Gate::ChargeLongWork() {
  if (!state_.RunsLong(base::NowNs())) return;
  MarkRest();
  executor_.poller().AdvanceAll();
  executor_.FlushNotices();
  Tell(event::StillRuns{});
}

void Gate::WatchGrants() {
  std::unique_lock lock(executor_.mutex());
  for (;;) {
    ChargeLongWork();
    Look();
    Tell(event::Ticked{executor_.objects().has_streams()});
    const uint32_t futex = state_.grant().futex;
    const uint64_t sleep_ns = state_.SleepNs();
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
    if (state_.in_grace()) {
      work_.wait_for(lock, std::chrono::nanoseconds(kGraceNs), [this] { return !asleep_; });
    } else {
      work_.wait(lock, [this] { return !asleep_; });
    }
    asleep_ = false;
  }
}

}  // namespace rgpu::exec
