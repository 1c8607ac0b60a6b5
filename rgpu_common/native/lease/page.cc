#include "rgpu_common/native/lease/page.h"

#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <new>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::lease {
namespace {

// The longest wait for the lock. A holder needs microseconds. If a holder is stopped (SIGSTOP), the
// other workers' charges are refused after this time, until the holder continues or dies.
constexpr uint64_t kLockNs = 2'000'000'000;
constexpr int kSpins = 64;
constexpr int kSteadyReads = 100;
constexpr uint32_t kPassesPerAsk = 64;
constexpr timespec kOthersPause = {0, 1'000'000};
constexpr timespec kLockPause = {0, 50'000};

class Lock {
 public:
  explicit Lock(Page* page) : mutex_(&page->mutex) {
    // Not pthread_mutex_timedlock: its deadline uses a clock that can be set.
    uint64_t until = 0;
    for (int spins = 0; !Try(); ++spins) {
      if (spins < kSpins) {
        sched_yield();
        continue;
      }
      const uint64_t now = base::NowNs();
      if (until == 0) until = now + kLockNs;
      if (now >= until) return;
      nanosleep(&kLockPause, nullptr);
    }
  }
  ~Lock() {
    if (held_) pthread_mutex_unlock(mutex_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return held_; }

 private:
  bool Try() {
    const int error = pthread_mutex_trylock(mutex_);
    // EOWNERDEAD: the owner died. The page is consistent, because each change is one atomic store.
    if (error == EOWNERDEAD) pthread_mutex_consistent(mutex_);
    held_ = error == 0 || error == EOWNERDEAD;
    return held_ || error != EBUSY;
  }

  pthread_mutex_t* mutex_;
  bool held_ = false;
};

uint64_t SaturatingSum(uint64_t sum, uint64_t more) {
  return more > UINT64_MAX - sum ? UINT64_MAX : sum + more;
}

// The sum over all slots. The caller holds the lock, so no other worker charges meanwhile. A
// release meanwhile may still be counted: the sum is never too small.
uint64_t Sum(const Page* page) {
  uint64_t sum = 0;
  for (const Slot& slot : page->slots) {
    sum = SaturatingSum(sum, slot.used_bytes.load());
  }
  return sum;
}

template <typename Read>
bool Reads(Read read, uint64_t (&held)[kSlots]) {
  bool same = true;
  for (uint32_t i = 0; i < kSlots; ++i) {
    const uint64_t now = read(i);
    same = same && held[i] == now;
    held[i] = now;
  }
  return same;
}

// The sum of `read(slot)` over all slots at one moment.
template <typename Read>
uint64_t SteadySum(Read read) {
  // Read until two readings agree. Otherwise, bytes that one worker releases and another charges
  // between two reads would count twice.
  uint64_t held[kSlots] = {};
  for (int reads = 0; !Reads(read, held) && reads < kSteadyReads; ++reads) {
  }
  uint64_t sum = 0;
  for (const uint64_t used : held) sum = SaturatingSum(sum, used);
  return sum;
}

uint32_t* FutexOf(const Page* page) {
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint32_t>*>(&page->credit_wanted));
}

}  // namespace

void InitPage(Page* page, uint64_t memory_limit_bytes) {
  new (page) Page{};
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&page->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  page->memory_limit_bytes = memory_limit_bytes;
  page->state = 1;
  page->magic = kPageMagic;
}

Page* MapPage(int grants_fd, int usage_fd, bool write_grants) {
  void* whole = mmap(nullptr, kPageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (whole == MAP_FAILED) return nullptr;
  const auto map = [](void* at, size_t bytes, int access, int fd) {
    return mmap(at, bytes, access, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  };
  const int grants = write_grants ? PROT_READ | PROT_WRITE : PROT_READ;
  if (map(whole, kGrantBytes, grants, grants_fd) &&
      map(static_cast<char*>(whole) + kGrantBytes, kUsageBytes, PROT_READ | PROT_WRITE, usage_fd)) {
    return static_cast<Page*>(whole);
  }
  const int error = errno;
  munmap(whole, kPageBytes);
  errno = error;
  return nullptr;
}

void UnmapPage(Page* page) { munmap(page, kPageBytes); }

bool IsPage(const Page* page) { return page->magic == kPageMagic; }

void RaisePeak(Page* page, uint32_t slot, uint64_t refused) {
  if (slot >= kSlots) return;
  Slot& own = page->slots[slot];
  const uint64_t allocated = AllocatedBytes(own, page->credit_bytes[slot].load());
  const uint64_t used = allocated - std::min(allocated, refused);
  uint64_t peak = own.peak_bytes.load(std::memory_order_relaxed);
  while (used > peak && !own.peak_bytes.compare_exchange_weak(peak, used)) {
  }
}

bool TryCharge(Page* page, uint32_t slot, uint64_t bytes, Peak peak) {
  if (slot >= kSlots) return false;
  const Lock lock(page);
  if (!lock.held()) return false;
  const uint64_t limit = page->memory_limit_bytes.load();
  const uint64_t used = Sum(page);
  if (used > limit || bytes > limit - used) return false;
  Count(page, slot, bytes, peak);
  return true;
}

bool Charge(Page* page, uint32_t slot, uint64_t bytes, Peak peak) {
  if (TryCharge(page, slot, bytes, peak)) return true;
  if (slot < kSlots) page->slots[slot].refused.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Count(Page* page, uint32_t slot, uint64_t bytes, Peak peak) {
  if (slot >= kSlots) return;
  page->slots[slot].used_bytes.fetch_add(bytes);
  if (peak == Peak::kNow) RaisePeak(page, slot);
}

void Release(Page* page, uint32_t slot, uint64_t bytes) {
  if (slot >= kSlots) return;
  std::atomic<uint64_t>& used = page->slots[slot].used_bytes;
  uint64_t before = used.load();
  while (!used.compare_exchange_weak(before, before - std::min(before, bytes))) {
  }
}

void SetFreeing(Page* page, uint32_t slot, uint64_t bytes) {
  if (slot < kSlots) page->freeing_bytes[slot].store(bytes);
}

uint64_t FreeingByOthers(const Page* page, uint32_t slot) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (i != slot) sum = SaturatingSum(sum, page->freeing_bytes[i].load());
  }
  return sum;
}

uint64_t PatienceWithOthers(const Page* page, uint32_t slot) {
  if (slot >= kSlots) return 0;
  if (CreditOfOthers(page, slot) != 0) return kReturnedCreditNs;
  if (UsedBytes(page) <= page->slots[slot].used_bytes.load()) return 0;
  return FreeingByOthers(page, slot) != 0 ? kPendingFreeNs : kPostedFreeNs;
}

void AskOthers(Page* page, uint32_t slot, uint32_t pass) {
  if (pass % kPassesPerAsk == 0 && CreditOfOthers(page, slot) != 0) WantCredit(page);
}

bool WaitForOthers(Page* page, uint32_t slot, const std::function<bool()>& enough) {
  base::WaitedTime waited(base::NowNs());
  for (uint32_t pass = 0;; ++pass) {
    // Read before `enough`: what comes back in between is found.
    const uint64_t patience = PatienceWithOthers(page, slot);
    if (enough()) return true;
    if (waited.Over(base::NowNs(), patience)) return false;
    AskOthers(page, slot, pass);
    nanosleep(&kOthersPause, nullptr);
  }
}

void SetCredit(Page* page, uint32_t slot, uint64_t bytes, uint64_t refused) {
  if (slot >= kSlots) return;
  page->credit_bytes[slot].store(bytes);
  RaisePeak(page, slot, refused);
}

uint64_t CreditOfOthers(const Page* page, uint32_t slot) {
  uint64_t sum = 0;
  for (uint32_t i = 0; i < kSlots; ++i) {
    if (i != slot) sum = SaturatingSum(sum, page->credit_bytes[i].load());
  }
  return sum;
}

void WantCredit(Page* page) {
  page->credit_wanted.fetch_add(1);
  syscall(SYS_futex, FutexOf(page), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

uint32_t CreditWanted(const Page* page) { return page->credit_wanted.load(); }

void WaitCreditWanted(const Page* page, uint32_t seen) {
  syscall(SYS_futex, FutexOf(page), FUTEX_WAIT, seen, nullptr, nullptr, 0);
}

uint64_t UsedBytes(const Page* page) {
  return SteadySum([page](uint32_t slot) { return page->slots[slot].used_bytes.load(); });
}

uint64_t AllocatedBytes(const Slot& slot, uint64_t credit_bytes) {
  const uint64_t used = slot.used_bytes.load();
  return used - std::min(used, credit_bytes);
}

uint64_t AllocatedBytes(const Page* page) {
  return SteadySum([page](uint32_t slot) {
    return AllocatedBytes(page->slots[slot], page->credit_bytes[slot].load());
  });
}

void SetCompiling(Page* page, uint32_t slot, bool compiling) {
  const uint64_t bit = uint64_t{1} << slot;
  if (compiling) {
    page->compiling.fetch_or(bit, std::memory_order_relaxed);
  } else {
    page->compiling.fetch_and(~bit, std::memory_order_relaxed);
  }
}

bool IsCompiling(const Page* page, uint32_t slot) {
  return slot < kSlots && ((page->compiling.load(std::memory_order_relaxed) >> slot) & 1) != 0;
}

int ClaimSlot(Page* page, uint64_t session) {
  for (uint32_t i = 0; i < kSlots; ++i) {
    uint64_t free = 0;
    if (page->slots[i].session.compare_exchange_strong(free, session)) return static_cast<int>(i);
  }
  return -1;
}

void ClearSlot(Page* page, uint32_t slot) {
  if (slot >= kSlots) return;
  Slot* own = &page->slots[slot];
  page->freeing_bytes[slot].store(0);
  page->credit_bytes[slot].store(0);
  SetCompiling(page, slot, false);
  own->gate.wants = 0;
  own->gate.kernel_us = 0;
  for (std::atomic<uint64_t>* field :
       {&own->gate.active_gen, &own->gate.near_end_gen, &own->gate.spent_gen,
        &own->gate.in_flight_ns, &own->gate.alive_ns, &own->gate.held_back_ns,
        &own->gate.drained_ns, &own->used_bytes, &own->peak_bytes, &own->launches, &own->copy_bytes,
        &own->busy_ns, &own->refused, &own->copies, &own->session}) {
    field->store(0);  // `session` is last: a 0 there makes the slot free
  }
}

}  // namespace rgpu::lease
