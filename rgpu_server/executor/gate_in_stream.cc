// The gate in host functions, which run in the driver's threads: client waits, and the wait for the
// token before a stream goes on.
#include <pthread.h>
#include <time.h>

#include <chrono>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/gate.h"

namespace rgpu::exec {

namespace {

// No call that puts work into the driver's queue takes so long unless the queue is full.
constexpr long kLockNs = 200 * static_cast<long>(base::kMillisecond);
constexpr std::chrono::milliseconds kAskAgain{100};

}  // namespace

Gate::ClientWait::ClientWait(Gate& gate, const WaitPlace& place, bool last)
    : gate_(gate), place_(place), last_(last) {
  gate_.notes_.Leave(event::WaitBegan{place_});
}

Gate::ClientWait::~ClientWait() { gate_.GoOn(place_, last_); }

void Gate::BeginValueWait(const WaitPlace& place) { notes_.Leave(event::WaitBegan{place, true}); }

void Gate::GoOn(const WaitPlace& place, bool last) {
  notes_.Leave(event::WaitEnded{place});
  if (notes_.any_aside()) WaitInStream(0, place.of);
  if (last) notes_.Leave(event::WaitPassed{place});
}

void Gate::AwaitInStream(uint64_t ns) {
  if (!on()) return;
  WaitInStream(ns, nullptr);
  Spent(ns);
}

// Waits in a driver's thread until work of `ns`, or the work that was set aside behind `waits`, is
// admitted.
//
// Meanwhile a thread may get stuck in the driver with the executor's lock, because the driver's
// queue is full of work that waits for this stream.  Then, and only then, the stream goes on
// without the token, and its work is charged when the lock is to be had again.
void Gate::WaitInStream(uint64_t ns, const std::shared_ptr<ClientWaits>& waits) {
  for (bool awaited = false;; awaited = true) {
    std::unique_lock lock = LockInStream();
    if (!lock.owns_lock()) {
      notes_.Leave(event::WentOn{waits, awaited});
      return;
    }
    in_stream_ = true;
    if (!awaited) Tell(event::AwaitBegan{});
    const bool admitted = Ask({.ns = ns, .in_stream = true, .returns = waits.get()});
    if (admitted) Tell(event::AwaitEnded{});
    in_stream_ = false;
    if (admitted) return;
    const uint64_t before = notes_.wakes();
    lock.unlock();
    notes_.Sleep(before, kAskAgain);
  }
}

// Takes the executor's lock.  Returns without the lock if a thread is stuck with it in the driver's
// queue.  A thread that has the lock for long for another reason is waited for: a client could
// otherwise make that happen, and run its work without the token.
std::unique_lock<std::mutex> Gate::LockInStream() {
  std::mutex& mutex = executor_.mutex();
  for (;;) {
    const uint64_t before = executor_.order().enqueuing();
    struct timespec until = {};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += kLockNs;
    until.tv_sec += until.tv_nsec / static_cast<long>(base::kSecond);
    until.tv_nsec %= static_cast<long>(base::kSecond);
    if (pthread_mutex_clocklock(mutex.native_handle(), CLOCK_MONOTONIC, &until) == 0) {
      return {mutex, std::adopt_lock};
    }
    if (before % 2 == 1 && executor_.order().enqueuing() == before) return {};
  }
}

}  // namespace rgpu::exec
