// The shared page of one lease. Its layout is fixed; Python uses it through native_abi.h.
//
// The page is two memory files, mapped one after the other. The first holds what the lease is
// granted; workers can only read it. The second holds what the workers report. A worker that writes
// nonsense there cannot grant anything to itself or to another worker.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::lease {

inline constexpr uint32_t kGrantBytes = 4096;  // a multiple of the machine's page size
inline constexpr uint32_t kUsageBytes = 8192;
inline constexpr uint32_t kPageBytes = kGrantBytes + kUsageBytes;
inline constexpr uint32_t kSlots = 56;
inline constexpr uint64_t kPageMagic = 0x3345534145'4cULL;

// What a worker's executor gate reports about its device work (token.h). Times are CLOCK_MONOTONIC,
// in ns. A `_gen` field holds the generation of a grant.
struct SlotGate {
  // The grant under which the worker has work on the device, or may put work there without reading
  // the grant again. 0: neither.
  std::atomic<uint64_t> active_gen;
  std::atomic<uint64_t> near_end_gen;  // the grant whose last work the worker has released
  std::atomic<uint64_t> spent_gen;     // the grant that the worker gave back with work left
  std::atomic<uint32_t> wants;         // 1: the gate holds work back
  std::atomic<uint32_t> kernel_us;     // estimated device time of one piece of work
  std::atomic<uint64_t> in_flight_ns;  // estimated device time of the work on the device
  std::atomic<uint64_t> alive_ns;      // when the gate last ran, while it works under a grant
  std::atomic<uint64_t> held_back_ns;  // total time for which work was held back
  std::atomic<uint64_t> drained_ns;    // when its last work completed; valid if active_gen is 0
};

// The slot of one worker process of the lease. Only that worker writes it; the daemon clears it.
// One exception: the daemon changes used_bytes for memory whose exporter has ended
// (rgpu_server/core/exports.py).
struct Slot {
  std::atomic<uint64_t> session;     // 0 = free
  std::atomic<uint64_t> used_bytes;  // memory charged to the slot
  std::atomic<uint64_t> peak_bytes;
  std::atomic<uint64_t> launches;
  std::atomic<uint64_t> copy_bytes;
  std::atomic<uint64_t> busy_ns;  // total time in which the worker had work on the device
  std::atomic<uint64_t> refused;
  std::atomic<uint64_t> copies;
  SlotGate gate;
};
static_assert(sizeof(Slot) == 128);

// The lease's right to the device, as the token loop last wrote it (token.h).
struct Token {
  std::atomic<uint64_t> word;          // generation, serial and phase; its low half is a futex
  std::atomic<uint64_t> heartbeat_ns;  // when the token loop last ran
  std::atomic<uint64_t> start_ns[2];   // start of the slice; [serial & 1] belongs to the word
  std::atomic<uint64_t> slice_ns[2];   // length of the slice, likewise
};

struct Page {
  // What the lease is granted. The daemon and the token loop write it, workers read it.
  uint64_t magic;
  std::atomic<uint64_t> memory_limit_bytes;  // daemon writes
  std::atomic<uint32_t> share_request_ppm;   // daemon writes
  std::atomic<uint32_t> share_limit_ppm;     // daemon writes
  std::atomic<uint32_t> state;               // daemon writes: 1 active, 2 paused, 3 ended
  uint8_t reserved0[256 - 28];
  Token token;  // token loop writes
  uint8_t reserved1[kGrantBytes - 256 - sizeof(Token)];

  // What the workers report.
  pthread_mutex_t mutex;  // robust, process-shared; held while a charge is checked
  // For each slot, written by its worker: bytes that are charged as memory credit and that the
  // program has not used yet (docs/adr/0018-memory-credit.md).
  std::atomic<uint64_t> credit_bytes[kSlots];
  // Changes when a process of the lease needs memory that others hold as credit. A futex.
  std::atomic<uint32_t> credit_wanted;
  uint8_t reserved2[512 - sizeof(pthread_mutex_t) - sizeof(std::atomic<uint64_t>) * kSlots -
                    sizeof(std::atomic<uint32_t>)];
  // For each slot, written by its worker: bytes that are still charged but will soon be free.
  // Another worker whose charge is refused waits for them.
  std::atomic<uint64_t> freeing_bytes[kSlots];
  // A bit for each slot. Its worker sets the bit while the driver loads or compiles code.
  std::atomic<uint64_t> compiling;
  uint8_t reserved3[1024 - 512 - sizeof(std::atomic<uint64_t>) * (kSlots + 1)];
  Slot slots[kSlots];
};
static_assert(sizeof(Page) == kPageBytes);
static_assert(offsetof(Page, mutex) == kGrantBytes);
static_assert(offsetof(Page, freeing_bytes) == kGrantBytes + 512);
static_assert(offsetof(Page, slots) == kGrantBytes + 1024);

// Maps the two files of a page one after the other. Null: errno says why. Only the daemon and the
// token loop set `write_grants`; a worker's descriptor does not allow it.
Page* MapPage(int grants_fd, int usage_fd, bool write_grants);
void UnmapPage(Page* page);

// Initialises a mapped page.
void InitPage(Page* page, uint64_t memory_limit_bytes);
bool IsPage(const Page* page);

// Worker: charges `bytes` to `slot` if the sum over all slots stays within the limit. The charge is
// atomic over all processes of the lease. A process that dies while it charges does not block the
// others. If a process is stopped while it charges, the others wait for up to 2 s and are then
// refused.
//
// kLater: who charges before it asks the device raises the peak by RaisePeak, once the device has
// given the memory. Bytes that were refused are in no peak.
enum class Peak : uint8_t { kNow, kLater };
bool TryCharge(Page* page, uint32_t slot, uint64_t bytes, Peak peak = Peak::kNow);
// Worker: the same, and counts a refusal in the slot.
bool Charge(Page* page, uint32_t slot, uint64_t bytes, Peak peak = Peak::kNow);
// Worker: raises the slot's peak to what it has allocated. refused: bytes of it that are still
// charged although their allocation was refused.
void RaisePeak(Page* page, uint32_t slot, uint64_t refused = 0);
// Worker, and the daemon for exports: charges memory that the device has already given, even above
// the limit.
void Count(Page* page, uint32_t slot, uint64_t bytes, Peak peak = Peak::kNow);
// Worker, and the daemon for exports: releases `bytes`, at most what is charged to the slot.
void Release(Page* page, uint32_t slot, uint64_t bytes);
// Worker: sets how many of its charged bytes will soon be free.
void SetFreeing(Page* page, uint32_t slot, uint64_t bytes);
// Worker: sets whether the driver loads or compiles code for it.
void SetCompiling(Page* page, uint32_t slot, bool compiling);
// Daemon: reads what SetCompiling wrote.
bool IsCompiling(const Page* page, uint32_t slot);
// Worker: the sum of the freeing bytes of all slots but `slot`.
uint64_t FreeingByOthers(const Page* page, uint32_t slot);
// A refusal waits so long for frees that may be on their way to a worker,
inline constexpr uint64_t kPostedFreeNs = 250 * base::kMillisecond;
// for frees that wait for work on the device,
inline constexpr uint64_t kPendingFreeNs = 500 * base::kMillisecond;
// and for credit. A client needs some milliseconds and a round trip to return it, and more on a
// machine with more programs than processors. One that is stopped does not return it.
inline constexpr uint64_t kReturnedCreditNs = base::kSecond;
// Worker: how long a refusal may wait for other processes of the lease, in ns. 0: they hold
// nothing. One of them may have freed memory and then told this process. Its free is either under
// way to its worker, or it has arrived and waits for work on the device.
uint64_t PatienceWithOthers(const Page* page, uint32_t slot);
// Worker: asks the others for their credit, now and then in a loop that waits for memory. pass: 0
// in the first one. What they free meanwhile may become credit after they were asked.
void AskOthers(Page* page, uint32_t slot, uint32_t pass);
// Worker: waits until `enough` returns true, for as long as the others may give memory back, and
// asks for their credit. Returns what `enough` returned last.
bool WaitForOthers(Page* page, uint32_t slot, const std::function<bool()>& enough);
// Worker: sets how many of its charged bytes are credit that the program has not used. refused: as
// in RaisePeak.
void SetCredit(Page* page, uint32_t slot, uint64_t bytes, uint64_t refused = 0);
// Worker: the sum of the credit of all slots but `slot`.
uint64_t CreditOfOthers(const Page* page, uint32_t slot);
// Daemon and worker: asks all workers of the lease to give their credit back.
void WantCredit(Page* page);
// Worker: how often that was asked for, and a wait until it is not `seen` times any more.
uint32_t CreditWanted(const Page* page);
void WaitCreditWanted(const Page* page, uint32_t seen);

// Daemon and worker: the bytes charged to all slots at one moment. Never blocks. If the slots
// change faster than they can be read, bytes that move between slots may count twice.
uint64_t UsedBytes(const Page* page);
// The same without credit: what the programs have allocated.
uint64_t AllocatedBytes(const Page* page);
uint64_t AllocatedBytes(const Slot& slot, uint64_t credit_bytes);

// Daemon only, which is one process, so there is no lock. ClaimSlot takes a free slot for a session
// (not 0); -1: all are taken. ClearSlot frees the slot of an ended worker, and with it all that was
// charged to the slot.
int ClaimSlot(Page* page, uint64_t session);
void ClearSlot(Page* page, uint32_t slot);

}  // namespace rgpu::lease
