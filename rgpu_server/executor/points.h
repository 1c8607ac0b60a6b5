// Points in streams that can be waited for, and the driver events behind them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "rgpu_server/executor/driver.h"
#include "rgpu_server/executor/gate/client_waits.h"

namespace rgpu::exec {

struct Delivery;
// The deliveries that precede a point in stream order. The point counts as complete only when these
// are in the outbox, and a message that reports it follows them there.
struct Frontier {
  std::vector<std::shared_ptr<Delivery>> pending;  // not known to be in the outbox
  // Number of the last frame of those in the outbox; delivery frames count from 1.
  uint64_t sent = 0;

  // Removes deliveries that are in the outbox. Returns true if none is pending.
  bool Settle();
  // Adds all deliveries that `other` has.
  void Merge(const Frontier& other);
};

// Driver events of one context, for reuse. Every record takes an event that is not in use, so that
// a wait is bound to what was recorded when it was decoded (waits are snapshots).
class EventPool {
 public:
  explicit EventPool(const Driver& driver) : driver_(driver) {}
  // The context must be current. `flags`: CUevent_flags.
  CUresult Take(unsigned int flags, CUevent* event);
  void Give(unsigned int flags, CUevent event);
  // Called when the context is gone, and its events with it.
  void Abandon();
  bool abandoned();

 private:
  static constexpr size_t kKept = 256;  // per kind of flags

  const Driver& driver_;
  std::mutex mutex_;
  bool abandoned_ = false;
  std::unordered_map<unsigned int, std::vector<CUevent>> free_;
};

// Shared by all that wait for it. The event returns to its pool when the last of them lets go.
struct Point {
  Point(std::shared_ptr<EventPool> owner, unsigned int event_flags)
      : pool(std::move(owner)), flags(event_flags) {}
  // A later record of the same driver event (Event::fixed).
  explicit Point(std::shared_ptr<const Point> recorded_before)
      : pool(recorded_before->pool),
        flags(recorded_before->flags),
        event(recorded_before->event),
        original(std::move(recorded_before)),
        fixed(true) {}
  ~Point() {
    if (event != nullptr && original == nullptr) pool->Give(flags, event);
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
  CUevent event = nullptr;                // null: complete from the start
  std::shared_ptr<const Point> original;  // set: the driver event belongs to that point
  bool done = false;                      // known to be complete; guarded by the executor's lock
  uint64_t done_ns = 0;                   // when that became known
  bool awaited = false;  // a thread waited for the event, so done_ns is nearly exact
  bool fixed = false;    // the driver event may be recorded again (Event::fixed)
  Frontier frontier;
  WaitPlaces behind;  // client waits (gate/client_waits.h)
};

// Flags of our own events: no timing, and waiting threads sleep instead of spinning.
inline constexpr unsigned int kInternalEvent = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
inline constexpr unsigned int kTimedEvent = CU_EVENT_BLOCKING_SYNC;

}  // namespace rgpu::exec
