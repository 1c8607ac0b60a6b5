// Memory that the program has freed and that work issued before may still touch: its pages go when
// that work is done.
#pragma once

#include <deque>
#include <mutex>

#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/stream.h"

namespace rgpu::emu {

class Limbo {
 public:
  explicit Limbo(Arena* arena) : arena_(arena) {}

  // `allocation` is hidden already.
  void Retire(AllocationRef allocation, Fences after);
  // Releases what may go.
  void Reap();
  // Waits for the oldest; false: there is none.
  bool WaitOldest();

 private:
  struct Entry {
    AllocationRef allocation;
    Fences after;
  };
  Arena* const arena_;
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

}  // namespace rgpu::emu
