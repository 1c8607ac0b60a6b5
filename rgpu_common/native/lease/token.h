// The token: the right of one lease to put work on a device. The token loop grants and recalls it
// through the lease's page.
//
// Only the loop writes `Page::token`. Each worker writes only its own `SlotGate`, and then signals
// the lease's eventfd. Both sides publish states, never events, so nothing is lost when the other
// side reads late or reads twice.
//
//   A worker puts work on the device only if  phase is kOff, or
//                                             phase is kSlice or kOpen and active_gen == generation
//   A worker stores active_gen = g (seq_cst), then reads the word again (seq_cst). If the word is
//   no longer g, or is kRecalled, the worker takes active_gen back. The loop stores kRecalled
//   (seq_cst), then reads active_gen of all slots (seq_cst). So the loop sees every worker that put
//   work on the device, and a worker that the loop does not see puts none there.
#pragma once

#include <cstdint>

#include "rgpu_common/native/lease/page.h"

namespace rgpu::lease {

enum class Phase : uint8_t {
  kOff = 0,       // the loop does not schedule this lease: all its work may run
  kNone = 1,      // another lease has its turn
  kPrepare = 2,   // this lease is next
  kSlice = 3,     // granted until start_ns + slice_ns
  kOpen = 4,      // granted until recalled
  kRecalled = 5,  // release no more work, and report when the device has completed the rest
};

struct Grant {
  uint64_t generation = 0;
  Phase phase = Phase::kOff;
  uint64_t start_ns = 0;
  uint64_t slice_ns = 0;
  uint32_t futex = 0;  // for WaitGrant: the low half of the word from which this was read

  bool running() const { return phase == Phase::kSlice || phase == Phase::kOpen; }
  bool operator==(const Grant&) const = default;
};

// Loop: writes the grant and wakes the lease's workers. Ignores `grant.futex`.
void WriteGrant(Page* page, const Grant& grant);
// Worker: reads the grant. Never blocks, and never mixes fields of two grants.
Grant ReadGrant(const Page* page);
// True if the word has not been written since `grant` was read. Every launch makes this check.
inline bool SameGrant(const Page* page, const Grant& grant) {
  return static_cast<uint32_t>(page->token.word.load(std::memory_order_acquire)) == grant.futex;
}
// Worker: sleeps until the word's low half differs from `futex`, or for `timeout_ns`.
void WaitGrant(const Page* page, uint32_t futex, uint64_t timeout_ns);

// The reports of a lease's workers, summed up.
struct Demand {
  uint32_t workers = 0;          // slots in use
  uint32_t active = 0;           // workers with an active_gen
  uint32_t wanting = 0;          // workers that hold work back
  uint32_t near_end = 0;         // workers that have released their last work under `generation`
  uint32_t spent = 0;            // workers that gave `generation` back with work left
  uint32_t kernel_us = 0;        // the longest estimate
  uint64_t in_flight_ns = 0;     // sum
  uint64_t busy_ns = 0;          // sum
  uint64_t held_back_ns = 0;     // sum
  uint64_t oldest_alive_ns = 0;  // the smallest alive_ns of an active worker; 0: none is active
  uint64_t drained_ns = 0;       // the latest drained_ns of a worker that is not active
};
// Loop: sums up the slots in `slots` (bit 0: slot 0). The loop passes the slots of the workers that
// it knows; the other slots may hold nonsense.
Demand ReadDemand(const Page* page, uint64_t generation, uint64_t slots = UINT64_MAX);

// Wakes the workers that wait for the word, without changing it.
void WakeWorkers(Page* page);

}  // namespace rgpu::lease
