// The shared page of one lease.  Layout is fixed; Python reads it through native_abi.h.
//
// Two files in memory, mapped behind each other: what is granted, which workers can only read, and
// what workers say.  Whatever a worker writes, it cannot give itself or a sibling anything.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rgpu::lease {

inline constexpr uint32_t kGrantBytes = 4096;  // a multiple of the machine's page size
inline constexpr uint32_t kUsageBytes = 8192;
inline constexpr uint32_t kPageBytes = kGrantBytes + kUsageBytes;
inline constexpr uint32_t kSlots = 56;
inline constexpr uint64_t kPageMagic = 0x3345534145'4cULL;

// What a worker says about its device work (token.h).  Times are CLOCK_MONOTONIC, in ns.
struct SlotGate {
  std::atomic<uint64_t> active_gen;  // the grant it works under: it has work on the device, or may
                                     // put some there without asking again; 0: neither
  std::atomic<uint64_t> near_end_gen;  // the grant whose last work it has released
  std::atomic<uint64_t> spent_gen;     // the grant it gave back with work left over
  std::atomic<uint32_t> wants;         // work is held back
  std::atomic<uint32_t> kernel_us;     // what one piece of its work takes, estimated
  std::atomic<uint64_t> in_flight_ns;  // device time of what is on the device, estimated
  std::atomic<uint64_t> alive_ns;      // when its gate last looked, while it works under a grant
  std::atomic<uint64_t> held_back_ns;  // how long work was held back, in all
  std::atomic<uint64_t> drained_ns;  // when the last of it was complete; counts if active_gen is 0
};

// One per worker process of the lease; written by that worker only, cleared by the daemon.
struct Slot {
  std::atomic<uint64_t> session;     // 0 = free
  std::atomic<uint64_t> used_bytes;  // charged
  std::atomic<uint64_t> peak_bytes;
  std::atomic<uint64_t> launches;
  std::atomic<uint64_t> copy_bytes;
  std::atomic<uint64_t> busy_ns;  // union of the intervals in which it had work on the device
  std::atomic<uint64_t> refused;
  std::atomic<uint64_t> copies;
  SlotGate gate;
};
static_assert(sizeof(Slot) == 128);

// The right to the device, as the token loop last gave or took it (token.h).
struct Token {
  std::atomic<uint64_t> word;          // generation, serial and phase; its low half is a futex
  std::atomic<uint64_t> heartbeat_ns;  // when the loop last lived
  std::atomic<uint64_t> start_ns[2];   // of the slice; [serial & 1] goes with the word
  std::atomic<uint64_t> slice_ns[2];   // its length
};

struct Page {
  // What is granted: the daemon and the token loop write, workers read.
  uint64_t magic;
  std::atomic<uint64_t> memory_limit_bytes;  // daemon writes
  std::atomic<uint32_t> share_request_ppm;   // daemon writes
  std::atomic<uint32_t> share_limit_ppm;     // daemon writes
  std::atomic<uint32_t> state;               // daemon writes: 1 active, 2 paused, 3 ended
  uint8_t reserved0[256 - 28];
  Token token;  // token loop writes
  uint8_t reserved1[kGrantBytes - 256 - sizeof(Token)];

  // What workers say.
  pthread_mutex_t mutex;  // robust, process-shared; held while a charge is checked
  uint8_t reserved2[512 - sizeof(pthread_mutex_t)];
  // Per slot, written as the slot is: what is charged to it and on its way to be free.  A refused
  // neighbour waits for it.
  std::atomic<uint64_t> freeing_bytes[kSlots];
  // A bit per slot, which its worker sets as long as the driver loads or compiles code for it.
  std::atomic<uint64_t> compiling;
  uint8_t reserved3[1024 - 512 - sizeof(std::atomic<uint64_t>) * (kSlots + 1)];
  Slot slots[kSlots];
};
static_assert(sizeof(Page) == kPageBytes);
static_assert(offsetof(Page, mutex) == kGrantBytes);
static_assert(offsetof(Page, freeing_bytes) == kGrantBytes + 512);
static_assert(offsetof(Page, slots) == kGrantBytes + 1024);

// Maps the two files of a page behind each other; null, with errno, if that cannot be done.
// write_grants: for the daemon and the token loop; a worker's descriptor does not allow it.
Page* MapPage(int grants_fd, int usage_fd, bool write_grants);
void UnmapPage(Page* page);

// Makes a page in shared memory.
void InitPage(Page* page, uint64_t memory_limit_bytes);
bool IsPage(const Page* page);

// Worker: charges `bytes` to `slot` if the sum over all slots stays within the limit, atomically
// over all processes of the lease.  A process that died while it charged does not block the others;
// one that was stopped then delays them for 2 s, and they are refused.
bool TryCharge(Page* page, uint32_t slot, uint64_t bytes);
// The same; a refusal counts in the slot.
bool Charge(Page* page, uint32_t slot, uint64_t bytes);
// Worker: what the device holds already is counted, also above the limit.
void Count(Page* page, uint32_t slot, uint64_t bytes);
// Worker: gives back at most what the slot holds.
void Release(Page* page, uint32_t slot, uint64_t bytes);
// Worker: says how much of what it holds is on its way to be free.
void SetFreeing(Page* page, uint32_t slot, uint64_t bytes);
// Worker: says whether the driver loads or compiles code for it.
void SetCompiling(Page* page, uint32_t slot, bool compiling);
// Daemon.
bool IsCompiling(const Page* page, uint32_t slot);
// Worker: what all slots but `slot` say.
uint64_t FreeingByOthers(const Page* page, uint32_t slot);

// Daemon and worker: what all slots held at one moment.  Never blocks; while slots change faster
// than they can be read, what is given back and taken meanwhile counts twice.
uint64_t UsedBytes(const Page* page);

// Daemon only (one process, so no lock): takes a free slot for a session (not 0), -1 if there is
// none; gives the slot of an ended worker back, which subtracts all it had charged.
int ClaimSlot(Page* page, uint64_t session);
void ClearSlot(Page* page, uint32_t slot);

}  // namespace rgpu::lease
