// Places in streams that can be waited for, and the driver events behind them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/stalls.h"

namespace rgpu::exec {

struct Delivery;
// Deliveries that a place comes behind: it is complete only when these are in the outbox, and what
// says so comes behind them there.
struct Frontier {
  std::vector<std::shared_ptr<Delivery>> pending;  // perhaps not in the outbox yet
  uint64_t sent = 0;  // the last frame of those that are; frames of deliveries count from 1

  // Lets go of what is in the outbox.  True: all of it is.
  bool Settle();
  // Comes behind all that `other` comes behind.
  void Merge(const Frontier& other);
};

// Events of one context that are used again and again: a fresh one per record, so that a wait is
// bound to what was recorded when it was decoded (waits are snapshots).
class EventPool {
 public:
  explicit EventPool(const Driver& driver) : driver_(driver) {}
  // The context is current.  `flags`: CUevent_flags.
  CUresult Take(unsigned int flags, CUevent* event);
  void Give(unsigned int flags, CUevent event);
  // The context is gone, and its events with it.
  void Abandon();

 private:
  static constexpr size_t kKept = 256;  // per kind of flags

  const Driver& driver_;
  std::mutex mutex_;
  bool abandoned_ = false;
  std::unordered_map<unsigned int, std::vector<CUevent>> free_;
};

// Shared by everybody who waits for it; the event goes back to its pool with the last of them.
struct Point {
  Point(std::shared_ptr<EventPool> owner, unsigned int event_flags)
      : pool(std::move(owner)), flags(event_flags) {}
  ~Point() {
    if (event != nullptr) pool->Give(flags, event);
  }
  Point(const Point&) = delete;
  Point& operator=(const Point&) = delete;

  void Finish(uint64_t now_ns, bool was_awaited) {
    if (done) return;
    done = true;
    done_ns = now_ns;
    awaited = was_awaited;
  }

  std::shared_ptr<EventPool> pool;
  unsigned int flags;
  CUevent event = nullptr;  // null: complete from the start
  bool done = false;        // the event is known to be complete; guarded by the executor's lock
  uint64_t done_ns = 0;     // when that was learnt
  bool awaited = false;     // by somebody who waited for it: at once
  Frontier frontier;
  Stalls behind;
};

// What our own events are made with: no timing, and a waiter that sleeps instead of spinning.
inline constexpr unsigned int kInternalEvent = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
inline constexpr unsigned int kTimedEvent = CU_EVENT_BLOCKING_SYNC;

}  // namespace rgpu::exec
