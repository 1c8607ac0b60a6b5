#include "rgpu_common/native/lease/page.h"

#include <errno.h>
#include <time.h>

#include <algorithm>
#include <new>

namespace rgpu::lease {
namespace {

// A holder needs microseconds.  One that was stopped inside must not stop its lease for ever: the
// others are refused memory until it goes on or dies.
constexpr time_t kLockSeconds = 2;

class Lock {
 public:
  explicit Lock(Page* page) : mutex_(&page->mutex) {
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += kLockSeconds;
    const int error = pthread_mutex_timedlock(mutex_, &until);
    // Its owner died.  Nothing is half done: every slot changes by one atomic store.
    if (error == EOWNERDEAD) pthread_mutex_consistent(mutex_);
    held_ = error == 0 || error == EOWNERDEAD;
  }
  ~Lock() {
    if (held_) pthread_mutex_unlock(mutex_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return held_; }

 private:
  pthread_mutex_t* mutex_;
  bool held_ = false;
};

void RaisePeak(Slot* slot, uint64_t used) {
  uint64_t peak = slot->peak_bytes.load(std::memory_order_relaxed);
  while (used > peak && !slot->peak_bytes.compare_exchange_weak(peak, used)) {
  }
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

bool IsPage(const Page* page) { return page->magic == kPageMagic; }

bool Charge(Page* page, uint32_t slot, uint64_t bytes) {
  if (slot >= kSlots) return false;
  Slot* own = &page->slots[slot];
  const Lock lock(page);
  const uint64_t limit = page->memory_limit_bytes.load();
  const uint64_t used = UsedBytes(page);
  if (!lock.held() || used > limit || bytes > limit - used) {
    own->refused.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  RaisePeak(own, own->used_bytes.fetch_add(bytes) + bytes);
  return true;
}

void Release(Page* page, uint32_t slot, uint64_t bytes) {
  if (slot >= kSlots) return;
  std::atomic<uint64_t>& used = page->slots[slot].used_bytes;
  uint64_t before = used.load();
  while (!used.compare_exchange_weak(before, before - std::min(before, bytes))) {
  }
}

uint64_t UsedBytes(const Page* page) {
  uint64_t sum = 0;
  for (const Slot& slot : page->slots) {
    const uint64_t used = slot.used_bytes.load();
    sum = used > UINT64_MAX - sum ? UINT64_MAX : sum + used;
  }
  return sum;
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
  for (std::atomic<uint64_t>* field :
       {&own->used_bytes, &own->peak_bytes, &own->launches, &own->copy_bytes, &own->busy_ns,
        &own->refused, &own->reserved, &own->session}) {
    field->store(0);  // the session last: it makes the slot free
  }
}

}  // namespace rgpu::lease
