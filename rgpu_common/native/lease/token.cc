#include "rgpu_common/native/lease/token.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>

namespace rgpu::lease {
namespace {

// The word: generation (32 bits), serial (29 bits), phase (3 bits). Every write changes the serial,
// so the low half alone shows whether the word was written.
constexpr uint64_t kPhaseMask = 7;
constexpr uint64_t kSerialMask = (uint64_t{1} << 29) - 1;

uint64_t Pack(uint64_t serial, const Grant& grant) {
  return (grant.generation << 32) | ((serial & kSerialMask) << 3) |
         static_cast<uint64_t>(grant.phase);
}

uint64_t SerialOf(uint64_t word) { return (word >> 3) & kSerialMask; }

// The address of the word's low half, which every write changes.
uint32_t* FutexOf(const Page* page) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the futex is the word's low half");
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint64_t>*>(&page->token.word));
}

}  // namespace

void WriteGrant(Page* page, const Grant& grant) {
  Token& token = page->token;
  const uint64_t serial = SerialOf(token.word.load(std::memory_order_relaxed)) + 1;
  // Write the pair that does not belong to the present word, so that its readers are not disturbed.
  token.start_ns[serial & 1].store(grant.start_ns);
  token.slice_ns[serial & 1].store(grant.slice_ns);
  token.word.store(Pack(serial, grant));
  WakeWorkers(page);
}

Grant ReadGrant(const Page* page) {
  const Token& token = page->token;
  for (;;) {
    const uint64_t word = token.word.load();
    const uint64_t bank = SerialOf(word) & 1;
    const Grant grant{word >> 32, static_cast<Phase>(word & kPhaseMask),
                      token.start_ns[bank].load(), token.slice_ns[bank].load(),
                      static_cast<uint32_t>(word)};
    if (token.word.load() == word) return grant;
  }
}

void WaitGrant(const Page* page, uint32_t futex, uint64_t timeout_ns) {
  timespec timeout{};
  timeout.tv_sec = static_cast<time_t>(timeout_ns / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(timeout_ns % 1'000'000'000);
  syscall(SYS_futex, FutexOf(page), FUTEX_WAIT, futex, &timeout, nullptr, 0);
}

void WakeWorkers(Page* page) {
  syscall(SYS_futex, FutexOf(page), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Demand ReadDemand(const Page* page, uint64_t generation, uint64_t slots) {
  static_assert(kSlots <= 64, "a bit for each slot");
  Demand demand;
  for (; slots != 0; slots &= slots - 1) {
    const auto index = static_cast<uint32_t>(std::countr_zero(slots));
    if (index >= kSlots) break;
    const Slot& slot = page->slots[index];
    if (slot.session.load(std::memory_order_relaxed) == 0) continue;
    const SlotGate& gate = slot.gate;
    ++demand.workers;
    demand.wanting += gate.wants.load() != 0 ? 1 : 0;
    demand.near_end += gate.near_end_gen.load() == generation ? 1 : 0;
    demand.spent += gate.spent_gen.load() == generation ? 1 : 0;
    demand.kernel_us = std::max(demand.kernel_us, gate.kernel_us.load());
    demand.in_flight_ns += gate.in_flight_ns.load();
    demand.busy_ns += slot.busy_ns.load();
    demand.held_back_ns += gate.held_back_ns.load();
    if (gate.active_gen.load() == 0) {
      demand.drained_ns = std::max(demand.drained_ns, gate.drained_ns.load());
      continue;
    }
    ++demand.active;
    const uint64_t alive = gate.alive_ns.load();
    if (demand.oldest_alive_ns == 0 || alive < demand.oldest_alive_ns) {
      demand.oldest_alive_ns = alive;
    }
  }
  return demand;
}

}  // namespace rgpu::lease
