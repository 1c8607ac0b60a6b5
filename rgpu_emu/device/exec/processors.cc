#include "rgpu_emu/device/exec/processors.h"

namespace rgpu::emu {

// The last processors are the pool's: interrupts and what else is on a machine prefer the first.
Processors::Processors(unsigned threads) {
  CPU_ZERO(&pool_);
  // Machines of more processors than the set holds refuse.
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
  // A processor that has been taken from the process meanwhile is refused: then anywhere will do.
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
