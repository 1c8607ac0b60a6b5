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
  bool TryCharge(uint64_t bytes) { return bytes == 0 || lease::TryCharge(page_, slot_, bytes); }
  // The same; a refusal is counted: it is the program's.
  bool Charge(uint64_t bytes) { return bytes == 0 || lease::Charge(page_, slot_, bytes); }
  // What the device holds already is counted, also above the limit: nothing new is given until it
  // is below again.
  void Count(uint64_t bytes) { lease::Count(page_, slot_, bytes); }
  // Moves what is charged for something that the device holds from `before` to `after`.
  void Correct(uint64_t before, uint64_t after) {
    if (after > before) Count(after - before);
    if (after < before) Release(before - after);
  }
  void Release(uint64_t bytes) {
    if (bytes != 0) lease::Release(page_, slot_, bytes);
  }
  // `bytes` of what is charged are on their way to be free (or no longer); with the executor's lock
  // held.
  void AddFreeing(uint64_t bytes) { lease::SetFreeing(page_, slot_, freeing_ += bytes); }
  void SubFreeing(uint64_t bytes) { lease::SetFreeing(page_, slot_, freeing_ -= bytes); }
  // In other processes of the lease.
  bool OthersHold() const { return used() > own(); }
  bool OthersFree() const { return lease::FreeingByOthers(page_, slot_) != 0; }
  uint64_t limit() const { return page_->memory_limit_bytes.load(std::memory_order_relaxed); }
  // Charged to this session.
  uint64_t own() const { return page_->slots[slot_].used_bytes.load(std::memory_order_relaxed); }
  // Charged to the lease.
  uint64_t used() const { return lease::UsedBytes(page_); }
  bool active() const { return page_->state.load(std::memory_order_relaxed) == 1; }

  // Says in the page whether the driver loads or compiles code, for as many callers as there are.
  void BeginCompiling() {
    if (compiling_++ == 0) lease::SetCompiling(page_, slot_, true);
  }
  void EndCompiling() {
    if (--compiling_ == 0) lease::SetCompiling(page_, slot_, false);
  }

  void CountRefused() { Add(&slot().refused, 1); }
  void CountLaunch() { Add(&slot().launches, 1); }
  void CountCopy(uint64_t bytes) {
    Add(&slot().copies, 1);
    Add(&slot().copy_bytes, bytes);
  }

 private:
  lease::Slot& slot() { return page_->slots[slot_]; }
  // The worker is the only writer of its slot.
  static void Add(std::atomic<uint64_t>* counter, uint64_t value) {
    counter->fetch_add(value, std::memory_order_relaxed);
  }

  lease::Page* page_;
  uint32_t slot_;
  uint64_t freeing_ = 0;
  uint32_t compiling_ = 0;  // with the executor's lock held
};

}  // namespace rgpu::exec
