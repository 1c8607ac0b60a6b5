#include "rgpu_server/executor/memory_credit.h"

#include <algorithm>
#include <utility>

#include "rgpu_common/native/base/clock.h"
#include "rgpu_server/executor/executor.h"
#include "rgpu_server/executor/notice.h"

namespace rgpu::exec {

namespace {

// The most credit of one session, as a part of its lease, and of what is left of the lease.
constexpr uint64_t kPartOfLease = 8;
constexpr uint64_t kPartOfRoom = 4;
// Addresses are used again only after all others, so that a kernel with an old pointer faults.
constexpr uint64_t kLargestWindow = uint64_t{64} << 30;
// After a shortage nothing is granted for so long: the process that was short needs the memory.
constexpr uint64_t kShortNs = 200'000'000;

uint64_t RoundDown(uint64_t bytes) { return bytes / CreditBook::kGranule * CreditBook::kGranule; }

}  // namespace

bool MemoryCredit::short_of_memory() const { return base::NowNs() < short_until_ns_; }

bool MemoryCredit::Open() {
  const Driver& driver = executor_.driver();
  if (book_.window().bytes != 0) return true;
  if (driver.credit.back == nullptr) return false;
  uint64_t bytes = kLargestWindow;
  const uint64_t base = driver.credit.window(&bytes);
  if (base == 0) return false;
  book_.Open({base, bytes});
  // Read now: whoever needs memory after the first grant must not be missed.
  NeedThread("rgpu-credit", [this, seen = ledger_.credit_wanted()] { Watch(seen); });
  return true;
}

// Another process of the lease needs memory, or the lease has become smaller.
void MemoryCredit::Watch(uint32_t seen) {
  for (;;) {
    ledger_.WaitCreditWanted(seen);
    seen = ledger_.credit_wanted();
    const std::lock_guard lock(executor_.mutex());
    Recall();
    executor_.FlushNotices();
  }
}

// Charges the lease and sets the memory aside on the device.
bool MemoryCredit::Charge(uint64_t bytes) {
  // The credit is shown first: what is charged as credit is at no time taken for an allocation.
  ledger_.SetCredit(book_.uncut() + bytes);
  const bool charged = ledger_.TryCharge(bytes);
  if (charged && executor_.driver().credit.set_aside(bytes) != 0) return true;
  if (charged) ledger_.Release(bytes);
  Show();
  return false;
}

void MemoryCredit::Grant(uint64_t wish) {
  const uint64_t limit = ledger_.limit();
  target_ = short_of_memory() ? 0 : std::min(wish, limit / kPartOfLease);
  const uint64_t room = limit - std::min(limit, ledger_.used());
  const uint64_t more =
      RoundDown(std::min(target_ - std::min(target_, book_.uncut()), room / kPartOfRoom));
  if (more == 0 || !Open()) return;
  const MemoryAccount::Change change(executor_.memory());
  if (Charge(more)) book_.Grant(more);
}

void MemoryCredit::Returned(uint64_t total) {
  const MemoryAccount::Change change(executor_.memory());
  const uint64_t bytes = book_.Return(total);
  if (bytes == 0) return;
  executor_.driver().credit.give_back(bytes);
  ledger_.Release(bytes);
  Show();
}

uint64_t MemoryCredit::Cut(uint64_t base, uint64_t bytes) {
  const uint64_t charged = book_.Cut(base, bytes);
  if (charged != 0) Show();
  return charged;
}

CUresult MemoryCredit::Back(uint64_t base, uint64_t bytes) {
  return executor_.driver().credit.back(base, bytes);
}

void MemoryCredit::Forfeit(uint64_t base, uint64_t charged) {
  const MemoryAccount::Change change(executor_.memory());
  book_.Drop(base);
  executor_.driver().credit.give_back(charged);
  ledger_.Release(charged);
}

void MemoryCredit::Freed(uint64_t seq, uint64_t base, uint64_t charged) {
  book_.Drop(base);
  book_.Freed(seq);
  changed_ = true;
  if (book_.uncut() + charged <= target_ && executor_.driver().credit.set_aside(charged) != 0) {
    book_.Grant(charged);
    Show();
  } else {
    ledger_.Release(charged);
  }
}

void MemoryCredit::Recall() {
  target_ = 0;
  short_until_ns_ = base::NowNs() + kShortNs;
  wanted_ = wanted_ || book_.uncut() != 0;
}

void MemoryCredit::Tell() {
  if (!changed_ && !wanted_) return;
  changed_ = false;
  wire::Writer writer = executor_.notices(0).Begin(NoticeHeader(wire::Notice::kMemoryCredit));
  const uint8_t wanted = std::exchange(wanted_, false) ? 1 : 0;
  Put(writer, wire::MemoryCredit{book_.granted(), book_.freed(), wanted});
  executor_.notices(0).End();
}

}  // namespace rgpu::exec
