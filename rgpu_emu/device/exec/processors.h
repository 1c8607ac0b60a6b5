// Which processor each thread of a runner's pool uses, so that a grid gets all processors at once.
//
// If no other processor looks idle, the system puts a waking thread beside the thread that woke it.
// In a virtual machine a sleeping processor does not look idle. Two threads of a grid then shared
// one of two processors for 10 ms and more, and a grid after a pause took twice as long as in a
// steady stream.
#pragma once

#include <sched.h>

namespace rgpu::emu {

class Processors {
 public:
  // `threads` threads run a grid: the calling one and the pool's. If there are more threads than
  // processors, the system places them.
  explicit Processors(unsigned threads);

  // Called once by thread `index` (from 0) of the pool: pins it to a processor of its own.
  void Settle(unsigned index) const;
  // Called by the thread that brings a grid: moves it off the pool's processors. Afterwards the
  // thread may run on any processor again.
  void MakeRoom() const;

 private:
  bool placed_ = false;
  cpu_set_t pool_;
  cpu_set_t rest_;
};

}  // namespace rgpu::emu
