// What host functions tell the gate, and how they wait for it, without the executor's lock.
//
// CUDA calls host functions in threads of its own.  A host function must not wait for the
// executor's lock without a bound: a thread may hold the lock in the driver, whose queue is full of
// work that waits for the very stream of this host function.  So a host function leaves a note, and
// whoever has the lock next hands the notes to GateState, in order.
//
// There are at most a few notes for each host function in the driver's queues, and no new host
// function gets there while the executor's lock is not to be had.
//
// The order of locks: the executor's, then this one.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/gate/events.h"

namespace rgpu::exec {

class GateNotes {
 public:
  using Note = std::variant<event::WaitBegan, event::WaitEnded, event::WaitPassed, event::WentOn>;

  void Leave(Note note) {
    const std::lock_guard lock(mutex_);
    notes_.emplace_back(std::move(note), base::NowNs());
    any_.store(true, std::memory_order_relaxed);
  }
  bool any() const { return any_.load(std::memory_order_relaxed); }

  // Calls `take(note, now_ns)` for all notes, and then `decide`, which returns what `any_aside` is
  // from then on.  No note is left meanwhile, so no client wait ends unseen while `decide` decides.
  template <typename Take, typename Decide>
  void Settle(Take take, Decide decide) {
    const std::lock_guard lock(mutex_);
    for (const auto& [note, now_ns] : notes_) take(note, now_ns);
    notes_.clear();
    any_.store(false, std::memory_order_relaxed);
    any_aside_ = decide();
  }
  // Some work is set aside.  A host function that has left the note that its wait has ended, and
  // then finds this false, returns at once: nothing is set aside behind that wait any more.
  bool any_aside() const { return any_aside_; }
  void NothingAside() {
    if (any_aside_.load(std::memory_order_relaxed)) any_aside_ = false;
  }

  // For host functions that wait: `wakes` with the executor's lock, `Sleep` without.
  uint64_t wakes() const { return wakes_; }
  void Sleep(uint64_t wakes_before, std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, most, [&] { return wakes_ != wakes_before; });
  }
  // With the executor's lock.
  void WakeAll() {
    const std::lock_guard lock(mutex_);
    ++wakes_;
    woken_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Note, uint64_t>> notes_;
  std::atomic<bool> any_{false};
  std::atomic<bool> any_aside_{false};
  uint64_t wakes_ = 0;  // changed with both locks
  std::condition_variable woken_;
};

}  // namespace rgpu::exec
