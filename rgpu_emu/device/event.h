// Events. A record is a place in a stream. A wait is bound to the record that was current when the
// wait was issued.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_emu/device/context.h"
#include "rgpu_emu/device/shared_event.h"

namespace rgpu::emu {

struct EventRecord {
  Fences places;
  std::atomic<int64_t> time_ns{0};  // set before the places are done

  void Stamp() { time_ns.store(static_cast<int64_t>(base::NowNs()), std::memory_order_release); }
};

class Event {
 public:
  Event(std::shared_ptr<Context> context, unsigned event_flags,
        std::shared_ptr<SharedEvent> other_processes = nullptr)
      : flags(event_flags), shared(std::move(other_processes)), context_(std::move(context)) {}

  const unsigned flags;
  // Not null: other processes see the event's records, which are there and not in `current_`.
  const std::shared_ptr<SharedEvent> shared;
  const Context* context() const { return context_.get(); }
  const std::shared_ptr<Context>& owner() const { return context_; }

  std::shared_ptr<EventRecord> Current() {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  void Replace(std::shared_ptr<EventRecord> record) {
    const std::lock_guard lock(mutex_);
    current_ = std::move(record);
  }

 private:
  const std::shared_ptr<Context> context_;
  std::mutex mutex_;
  std::shared_ptr<EventRecord> current_;
};

}  // namespace rgpu::emu
