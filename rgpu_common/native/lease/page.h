// The shared page of one lease.  Layout is fixed; Python reads it through native_abi.h.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace rgpu::lease {

inline constexpr uint32_t kPageBytes = 4096;
inline constexpr uint32_t kSlots = 56;
inline constexpr uint64_t kPageMagic = 0x3145534145'4cULL;

// One per worker process of the lease; written by that worker only, cleared by the daemon.
struct Slot {
  std::atomic<uint64_t> session;     // 0 = free
  std::atomic<uint64_t> used_bytes;  // charged
  std::atomic<uint64_t> peak_bytes;
  std::atomic<uint64_t> launches;
  std::atomic<uint64_t> copy_bytes;
  std::atomic<uint64_t> busy_ns;
  std::atomic<uint64_t> refused;
  std::atomic<uint64_t> reserved;
};
static_assert(sizeof(Slot) == 64);

struct Page {
  uint64_t magic;
  std::atomic<uint64_t> memory_limit_bytes;  // daemon writes
  std::atomic<uint32_t> share_request_ppm;   // daemon writes
  std::atomic<uint32_t> share_limit_ppm;     // daemon writes
  std::atomic<uint32_t> state;               // daemon writes: 1 active, 2 paused, 3 ended
  uint32_t reserved0;
  pthread_mutex_t mutex;  // robust, process-shared; held while a charge is checked
  uint8_t reserved1[512 - 32 - sizeof(pthread_mutex_t)];
  Slot slots[kSlots];
};
static_assert(sizeof(Page) == 4096);

// Makes a page in shared memory.
void InitPage(Page* page, uint64_t memory_limit_bytes);
bool IsPage(const Page* page);

// Worker: charges `bytes` to `slot` if the sum over all slots stays within the limit, atomically
// over all processes of the lease.  A refusal counts in the slot.  A process that died while it
// charged does not block the others.
bool Charge(Page* page, uint32_t slot, uint64_t bytes);
// Worker: gives back at most what the slot holds.
void Release(Page* page, uint32_t slot, uint64_t bytes);

// Daemon and worker: never blocks.
uint64_t UsedBytes(const Page* page);

// Daemon only (one process, so no lock): takes a free slot for a session (not 0), -1 if there is
// none; gives the slot of an ended worker back, which subtracts all it had charged.
int ClaimSlot(Page* page, uint64_t session);
void ClearSlot(Page* page, uint32_t slot);

}  // namespace rgpu::lease
