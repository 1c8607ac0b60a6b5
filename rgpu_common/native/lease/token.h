// The token: the right of one lease to put work on a device, given by the token loop through the
// lease's page.
//
// The loop alone writes `Page::token`; every worker of the lease alone writes its `SlotGate` and
// then signals the lease's eventfd.  Both sides say what *is*, never what happened, so nothing is
// lost when one of them looks late or looks twice.
//
//   worker puts work on the device only if  phase is kOff, or
//                                           phase is kSlice or kOpen and active_gen == generation
//   active_gen = g (seq_cst), then the word is read again (seq_cst): still g and not kRecalled, or
//   active_gen is taken back.  The loop writes kRecalled (seq_cst), then reads active_gen of all
//   slots (seq_cst).  So whoever put work there is seen, and whoever is not seen puts none.
#pragma once

#include <cstdint>

#include "rgpu_common/native/lease/page.h"

namespace rgpu::lease {

enum class Phase : uint8_t {
  kOff = 0,       // nobody schedules: everything may run
  kNone = 1,      // not this lease's turn
  kPrepare = 2,   // not yet, but next
  kSlice = 3,     // until slice_ns behind start_ns
  kOpen = 4,      // until recalled
  kRecalled = 5,  // release nothing more, say when the device is empty
};

struct Grant {
  uint64_t generation = 0;
  Phase phase = Phase::kOff;
  uint64_t start_ns = 0;
  uint64_t slice_ns = 0;
  uint32_t futex = 0;  // for WaitGrant: the word that this was read from

  bool running() const { return phase == Phase::kSlice || phase == Phase::kOpen; }
  bool operator==(const Grant&) const = default;
};

// Loop: writes the grant and wakes the lease's workers.  `futex` of `grant` is ignored.
void WriteGrant(Page* page, const Grant& grant);
// Worker: never blocks, and never mixes two grants.
Grant ReadGrant(const Page* page);
// Whether the word is still the one `grant` was read from; the check on the path of every launch.
inline bool SameGrant(const Page* page, const Grant& grant) {
  return static_cast<uint32_t>(page->token.word.load(std::memory_order_acquire)) == grant.futex;
}
// Worker: sleeps until the word is another than `futex`, or for `timeout_ns`.
void WaitGrant(const Page* page, uint32_t futex, uint64_t timeout_ns);

// What the workers of a lease say, together.
struct Demand {
  uint32_t workers = 0;          // slots in use
  uint32_t active = 0;           // that work under `generation` or an older grant
  uint32_t wanting = 0;          // that hold work back
  uint32_t near_end = 0;         // that have released their last work under `generation`
  uint32_t spent = 0;            // that gave `generation` back with work left over
  uint32_t kernel_us = 0;        // the longest estimate
  uint64_t in_flight_ns = 0;     // sum
  uint64_t busy_ns = 0;          // sum
  uint64_t held_back_ns = 0;     // sum
  uint64_t oldest_alive_ns = 0;  // of those active; 0: none
  uint64_t drained_ns = 0;       // when the last work of those not active was complete
};
// Loop.  Of the slots in `slots` (bit 0: slot 0): what stands in others is of no worker it knows.
Demand ReadDemand(const Page* page, uint64_t generation, uint64_t slots = UINT64_MAX);

// Wakes who waits for the word, without changing it.
void WakeWorkers(Page* page);

}  // namespace rgpu::lease
