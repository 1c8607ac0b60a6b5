#include "rgpu_emu/device/exec/processors.h"

namespace rgpu::emu {

// The pool gets the last processors, because interrupts and other programs prefer the first.
Processors::Processors(unsigned threads) {
  CPU_ZERO(&pool_);
  // The call fails on machines with more processors than the set holds.
  if (sched_getaffinity(0, sizeof rest_, &rest_) != 0) return;
  if (threads < 2 || threads > static_cast<unsigned>(CPU_COUNT(&rest_))) return;
  for (int cpu = CPU_SETSIZE - 1, left = static_cast<int>(threads) - 1; left > 0; --cpu) {
    if (!CPU_ISSET(cpu, &rest_)) continue;
    CPU_CLR(cpu, &rest_);
    CPU_SET(cpu, &pool_);
    --left;
  }
  placed_ = true;
}

void Processors::Settle(unsigned index) const {
  if (!placed_) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  int cpu = CPU_SETSIZE - 1;
  for (unsigned before = index; cpu >= 0; --cpu) {
    if (CPU_ISSET(cpu, &pool_) && before-- == 0) break;
  }
  if (cpu < 0) return;
  CPU_SET(cpu, &own);
  // If the processor was taken from the process meanwhile, the thread stays unpinned.
  if (sched_setaffinity(0, sizeof own, &own) != 0) return;
}

void Processors::MakeRoom() const {
  if (!placed_) return;
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE || !CPU_ISSET(here, &pool_)) return;
  cpu_set_t before;
  if (sched_getaffinity(0, sizeof before, &before) != 0) return;
  if (sched_setaffinity(0, sizeof rest_, &rest_) != 0) return;
  if (sched_setaffinity(0, sizeof before, &before) != 0) return;
}

}  // namespace rgpu::emu
