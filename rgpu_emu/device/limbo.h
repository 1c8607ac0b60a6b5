// Memory that the program has freed but that earlier work may still use: its pages are freed when
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

  // Frees `allocation`, which is hidden already, when `after` is done.
  void Retire(AllocationRef allocation, Fences after);
  // Frees the entries whose work is done.
  void Reap();
  // Waits for the oldest entry and frees it. Returns false if there is none.
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
