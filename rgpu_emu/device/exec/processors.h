// Which processor each thread of a runner's pool runs on, so that a grid has them all at once.
//
// The system puts a thread that wakes beside the one that woke it if no other processor looks idle,
// and in a virtual machine one that sleeps does not: both threads of a grid then shared one of two
// processors for 10 ms and more, and a grid after a pause took twice as long as in a steady stream.
#pragma once

#include <sched.h>

namespace rgpu::emu {

class Processors {
 public:
  // Of `threads` that run a grid all but the calling one are the pool's.  With more of them than
  // processors the system places them.
  explicit Processors(unsigned threads);

  // By thread `index` (from 0) of the pool, once: it stays on a processor of its own.
  void Settle(unsigned index) const;
  // By the thread that brings a grid: leaves the pool's processors to the pool.  It stays free to
  // go anywhere afterwards.
  void MakeRoom() const;

 private:
  bool placed_ = false;
  cpu_set_t pool_;
  cpu_set_t rest_;
};

}  // namespace rgpu::emu
