// The memory that this session is charged for in its lease's page. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "rgpu_common/native/lease/page.h"

namespace rgpu::exec {

class Ledger {
 public:
  Ledger(lease::Page* page, uint32_t slot) : page_(page), slot_(slot) {}

  // Returns false if the lease's limit would be exceeded; nothing is charged then.
  bool TryCharge(uint64_t bytes) {
    return bytes == 0 || Grown(lease::TryCharge(page_, slot_, bytes, lease::Peak::kLater));
  }
  // The same, but counts a refusal in the program's statistics.
  bool Charge(uint64_t bytes) {
    return bytes == 0 || Grown(lease::Charge(page_, slot_, bytes, lease::Peak::kLater));
  }
  // Charges for memory that the device has given already, even above the limit. The lease then gets
  // nothing new until it is below the limit again.
  void Count(uint64_t bytes) {
    lease::Count(page_, slot_, bytes, lease::Peak::kLater);
    Grown(true);
  }
  // Raises the peak after a command. Not with each charge: what is charged before the device is
  // asked, and then refused, was never used.
  void Settle() {
    if (grown_.exchange(false, std::memory_order_relaxed)) {
      lease::RaisePeak(page_, slot_, refused_.load(std::memory_order_relaxed));
    }
  }
  // Adds (subtracts) bytes that are charged, because a pool holds them until it is trimmed,
  // although their allocation was refused. They are in no peak.
  void AddRefused(uint64_t bytes) { refused_.fetch_add(bytes, std::memory_order_relaxed); }
  void SubRefused(uint64_t bytes) { refused_.fetch_sub(bytes, std::memory_order_relaxed); }
  // Changes the charge for something that the device holds from `before` to `after`.
  void Correct(uint64_t before, uint64_t after) {
    if (after > before) Count(after - before);
    if (after < before) Release(before - after);
  }
  void Release(uint64_t bytes) {
    if (bytes != 0) lease::Release(page_, slot_, bytes);
  }
  // Adds to (subtracts from) the bytes that are charged but will be free soon. The executor's lock
  // is held.
  void AddFreeing(uint64_t bytes) { lease::SetFreeing(page_, slot_, freeing_ += bytes); }
  void SubFreeing(uint64_t bytes) { lease::SetFreeing(page_, slot_, freeing_ -= bytes); }
  // How long a refusal may wait for other processes of the lease.
  uint64_t patience_with_others() const { return lease::PatienceWithOthers(page_, slot_); }
  // The credit that this session has and has not used is charged to it. Others of the lease may ask
  // for it.
  void SetCredit(uint64_t bytes) {
    lease::SetCredit(page_, slot_, bytes, refused_.load(std::memory_order_relaxed));
  }
  bool OthersHaveCredit() const { return lease::CreditOfOthers(page_, slot_) != 0; }
  void AskOthers(uint32_t pass) { lease::AskOthers(page_, slot_, pass); }
  uint32_t credit_wanted() const { return lease::CreditWanted(page_); }
  void WaitCreditWanted(uint32_t seen) const { lease::WaitCreditWanted(page_, seen); }
  uint64_t limit() const { return page_->memory_limit_bytes.load(std::memory_order_relaxed); }
  // Charged to the lease.
  uint64_t used() const { return lease::UsedBytes(page_); }
  // The same without credit.
  uint64_t allocated() const { return lease::AllocatedBytes(page_); }
  bool active() const { return page_->state.load(std::memory_order_relaxed) == 1; }

  // Shows in the page that the driver loads or compiles code. Calls nest.
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
  bool Grown(bool charged) {
    if (charged) grown_.store(true, std::memory_order_relaxed);
    return charged;
  }
  lease::Slot& slot() { return page_->slots[slot_]; }
  // Only this worker writes its slot.
  static void Add(std::atomic<uint64_t>* counter, uint64_t value) {
    counter->fetch_add(value, std::memory_order_relaxed);
  }

  lease::Page* page_;
  uint32_t slot_;
  uint64_t freeing_ = 0;
  std::atomic<bool> grown_{false};  // charged since Settle
  std::atomic<uint64_t> refused_{0};
  uint32_t compiling_ = 0;  // nesting depth; guarded by the executor's lock
};

}  // namespace rgpu::exec
