#include "rgpu_emu/device/value_watch.h"

#include <algorithm>
#include <thread>
#include <type_traits>

#include "rgpu_emu/device/context.h"
#include "rgpu_emu/device/exec/fault_guard.h"

namespace rgpu::emu {
namespace {

using namespace std::chrono_literals;

// How often a thread checks its own value before it sleeps: streams that hand work to each other
// answer faster than a sleeping thread wakes.
constexpr int kSpins = 200;
// The watcher's sleep between two rounds: the shortest after a change, then longer each time.
constexpr auto kShortest = 50us;
constexpr auto kLongest = 2ms;

template <class T>
bool Holds(T actual, T value, unsigned flags) {
  switch (flags) {
    case CU_STREAM_WAIT_VALUE_GEQ:
      return static_cast<std::make_signed_t<T>>(actual - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ:
      return actual == value;
    case CU_STREAM_WAIT_VALUE_AND:
      return (actual & value) != 0;
    default:
      return static_cast<T>(~(actual | value)) != 0;
  }
}

struct Look {
  const AwaitedValue& awaited;
  bool holds = false;
};

void Load(void* argument) {
  auto* look = static_cast<Look*>(argument);
  const AwaitedValue& awaited = look->awaited;
  if (awaited.wide) {
    const auto* at = reinterpret_cast<const uint64_t*>(awaited.address);
    look->holds = Holds(__atomic_load_n(at, __ATOMIC_SEQ_CST), awaited.value, awaited.flags);
  } else {
    const auto* at = reinterpret_cast<const uint32_t*>(awaited.address);
    look->holds = Holds(__atomic_load_n(at, __ATOMIC_SEQ_CST), static_cast<uint32_t>(awaited.value),
                        awaited.flags);
  }
}

}  // namespace

bool ValueWatch::Waiter::Check() {
  Look look{awaited};
  Fault fault;
  if (!RunGuarded(&Load, &look, &fault)) result = CUDA_ERROR_ILLEGAL_ADDRESS;
  over = look.holds || result != CUDA_SUCCESS || context.cancelled() ||
         context.Status() != CUDA_SUCCESS;
  return over;
}

CUresult ValueWatch::Wait(const Context& context, const AwaitedValue& awaited) {
  Waiter self{context, awaited};
  for (int spin = 0; spin < kSpins; ++spin) {
    if (self.Check()) return self.result;
    std::this_thread::yield();
  }
  std::unique_lock lock(mutex_);
  const auto place = waiters_.insert(waiters_.end(), &self);
  waiting_.fetch_add(1);
  // Commands that ended before the line above announced nothing to this waiter, so it checks again.
  self.Check();
  while (!self.over) {
    if (watcher_ == nullptr) {
      watcher_ = &self;
      checked_ = Clock::now();
      interval_ = kShortest;
    }
    if (watcher_ == &self) {
      Sleep(&lock);
      CheckAll();
    } else {
      self.wake.wait(lock);
    }
  }
  Leave(place);
  return self.result;
}

void ValueWatch::MemoryChanged() {
  // A write of the counter, not a read: so either this thread sees the waiter that Wait counts, or
  // that waiter's check sees what this thread wrote to memory.
  if (waiting_.fetch_add(0) == 0 || changed_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  if (watcher_ != nullptr) watcher_->wake.notify_one();
}

void ValueWatch::Sleep(std::unique_lock<std::mutex>* lock) {
  const auto changed = [this] { return changed_.load(); };
  if (!watcher_->wake.wait_until(*lock, checked_ + interval_, changed)) {
    interval_ = std::min<Clock::duration>(interval_ + interval_ / 4, kLongest);
    return;
  }
  interval_ = kShortest;
  // Streams that run many short commands must not keep the watcher busy.
  lock->unlock();
  std::this_thread::sleep_until(checked_ + kShortest);
  lock->lock();
}

void ValueWatch::CheckAll() {
  changed_.exchange(false);  // before the checks, so that a later change causes another round
  for (Waiter* waiter : waiters_) {
    if (waiter->over || !waiter->Check()) continue;
    interval_ = kShortest;
    waiter->wake.notify_one();
  }
  checked_ = Clock::now();
}

// If no thread is the watcher then, wakes a waiting one, which becomes it.
void ValueWatch::Leave(std::list<Waiter*>::iterator place) {
  if (watcher_ == *place) watcher_ = nullptr;
  waiters_.erase(place);
  waiting_.fetch_sub(1);
  if (watcher_ == nullptr && !waiters_.empty()) waiters_.front()->wake.notify_one();
}

}  // namespace rgpu::emu
