// Ctrl-C while the program waits for the GPU: work there cannot be interrupted, so the program's
// own handler runs only when it is done, and a user would not know why nothing happens.
#pragma once

#include <atomic>
#include <cstdint>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::shim {

// From now on, SIGINT in a wait of a second or more says that the program waits, and for what; a
// second one in the same wait ends the program at once. In any case the program's handler is
// called, as before. A program without one is left alone: SIGINT ends it, or it does not want it.
// Called by one thread at a time.
void WatchInterrupts();

// Exists while a thread waits for the server's answer. One wait is known at a time: in a program
// with several threads that of another one may hide it. A list of all waits would cost every call
// that waits a lock; this costs it two plain stores and a look at the coarse clock.
class Waits {
 public:
  Waits() {
    if (since_ns_.load(std::memory_order_relaxed) != 0) return;
    mine_ns_ = base::CoarseNowNs();
    since_ns_.store(mine_ns_, std::memory_order_relaxed);
  }
  ~Waits() {
    if (mine_ns_ != 0 && since_ns_.load(std::memory_order_relaxed) == mine_ns_) {
      since_ns_.store(0, std::memory_order_relaxed);
    }
  }
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  // Since when a thread waits; 0: none does.
  static uint64_t since_ns() { return since_ns_.load(std::memory_order_relaxed); }

 private:
  static inline std::atomic<uint64_t> since_ns_{0};
  uint64_t mine_ns_ = 0;
};

}  // namespace rgpu::shim
