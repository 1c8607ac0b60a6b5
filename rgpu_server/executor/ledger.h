// What this session is charged for in its lease's page.  Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "rgpu_common/native/lease/page.h"

namespace rgpu::exec {

class Ledger {
 public:
  Ledger(lease::Page* page, uint32_t slot) : page_(page), slot_(slot) {}

  // False: over the limit; nothing was charged.
  bool Charge(uint64_t bytes) { return bytes == 0 || lease::Charge(page_, slot_, bytes); }
  void Release(uint64_t bytes) {
    if (bytes != 0) lease::Release(page_, slot_, bytes);
  }
  // Moves what is charged for something from `before` to `after`.  False: the growth was refused.
  bool Adjust(uint64_t before, uint64_t after) {
    if (after > before) return Charge(after - before);
    Release(before - after);
    return true;
  }
  uint64_t limit() const { return page_->memory_limit_bytes.load(std::memory_order_relaxed); }
  // Charged to this session.
  uint64_t own() const { return page_->slots[slot_].used_bytes.load(std::memory_order_relaxed); }
  // Charged to the lease.
  uint64_t used() const { return lease::UsedBytes(page_); }
  bool active() const { return page_->state.load(std::memory_order_relaxed) == 1; }

  void CountLaunch() { Add(&slot().launches, 1); }
  void CountCopy(uint64_t bytes) { Add(&slot().copy_bytes, bytes); }

 private:
  lease::Slot& slot() { return page_->slots[slot_]; }
  // The worker is the only writer of its slot.
  static void Add(std::atomic<uint64_t>* counter, uint64_t value) {
    counter->fetch_add(value, std::memory_order_relaxed);
  }

  lease::Page* page_;
  uint32_t slot_;
};

}  // namespace rgpu::exec
