#include "rgpu_server/executor/role.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_common/native/base/log.h"

namespace rgpu::exec {

namespace {

constexpr size_t kStackBytes = 1U << 20;
constexpr uint64_t kStuckNs = 1'000'000;
// Each check of the watcher uses processor time, so its interval grows while it finds nothing.
// After kQuietTicks checks without a call it sleeps until the next call.
constexpr std::chrono::milliseconds kTick{1};
constexpr std::chrono::milliseconds kLongestTick{8};
constexpr int kQuietTicks = 16;

thread_local uint64_t t_since = 0;

struct ThreadStart {
  const char* name;
  std::function<void()> function;
};

void* RunThread(void* argument) {
  const std::unique_ptr<ThreadStart> start(static_cast<ThreadStart*>(argument));
  pthread_setname_np(pthread_self(), start->name);
  start->function();
  return nullptr;
}

}  // namespace

bool StartThread(const char* name, std::function<void()> function) {
  auto start = std::make_unique<ThreadStart>(ThreadStart{name, std::move(function)});
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool started = pthread_create(&thread, &attributes, RunThread, start.get()) == 0;
  pthread_attr_destroy(&attributes);
  if (started) (void)start.release();
  return started;
}

void NeedThread(const char* name, std::function<void()> function) {
  if (StartThread(name, std::move(function))) return;
  base::Log(base::Level::kError, "the thread %s cannot be started: the worker has no memory left",
            name);
  _exit(1);
}

void Role::Start(std::function<void()> thread_main) {
  thread_main_ = std::move(thread_main);
  threads_ = 1;
  NeedThread("rgpu-watch", [this] { Watch(); });
  NeedThread("rgpu-decode", thread_main_);
}

bool Role::Acquire() {
  std::unique_lock lock(mutex_);
  if (!free_ && idle_ >= kIdleThreads) {
    --threads_;
    return false;
  }
  ++idle_;
  free_changed_.wait(lock, [this] { return free_; });
  --idle_;
  free_ = false;
  return true;
}

bool Role::HaveSuccessor() {
  if (idle_ > 0) return true;
  if (threads_ >= kMaxDecoders || !StartThread("rgpu-decode", thread_main_)) return false;
  ++threads_;
  return true;
}

void Role::EnterCall() {
  t_since = base::NowNs();
  call_since_.store(t_since, std::memory_order_release);
  if (watcher_asleep_.load(std::memory_order_relaxed)) {
    std::lock_guard lock(mutex_);
    watcher_asleep_.store(false, std::memory_order_relaxed);
    watcher_wakes_.notify_one();
  }
}

bool Role::LeaveCall() {
  uint64_t since = t_since;
  return call_since_.compare_exchange_strong(since, 0, std::memory_order_acq_rel);
}

bool Role::Held() const {
  return t_since != 0 && call_since_.load(std::memory_order_relaxed) == t_since;
}

void Role::Yield() {
  if (!Held()) return;
  std::lock_guard lock(mutex_);
  // Without a successor this thread keeps the role: a slow decoder is better than none.
  if (!HaveSuccessor() || !LeaveCall()) return;
  free_ = true;
  free_changed_.notify_one();
}

void Role::Watch() {
  int quiet = 0;
  uint64_t seen = 0;
  auto tick = kTick;
  std::unique_lock lock(mutex_);
  for (;;) {
    uint64_t since = call_since_.load(std::memory_order_acquire);
    quiet = since == seen ? quiet + 1 : 0;
    seen = since;
    tick = std::min(2 * tick, kLongestTick);
    if (since != 0 && base::NowNs() - since >= kStuckNs && HaveSuccessor() &&
        call_since_.compare_exchange_strong(since, 0, std::memory_order_acq_rel)) {
      free_ = true;
      free_changed_.notify_one();
      tick = kTick;
    }
    if (quiet >= kQuietTicks && since == 0) {
      watcher_asleep_.store(true, std::memory_order_relaxed);
      watcher_wakes_.wait(lock, [this] { return !watcher_asleep_.load(); });
      quiet = 0;
      tick = kTick;
    }
    watcher_wakes_.wait_for(lock, tick);
  }
}

}  // namespace rgpu::exec
