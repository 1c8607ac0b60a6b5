// Streams that wait for a value in memory. One of the waiting threads, the watcher, checks the
// values of all of them; the other threads sleep until the watcher finds that their wait is over.
// When the watcher's own wait is over, another waiting thread becomes the watcher.
//
// The watcher sleeps between two rounds of checks. MemoryChanged ends that sleep, so a wait for a
// write in stream order ends at once, or 50 us later if a round has just ended. Other writes (by a
// running kernel, the host or another process) announce nothing: the next round finds them, at most
// about 2 ms later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

class Context;

struct AwaitedValue {
  uint64_t address = 0;
  uint64_t value = 0;
  unsigned flags = 0;
  bool wide = false;  // 8 bytes, else 4
};

class ValueWatch {
 public:
  // Blocks the calling thread until the condition holds. Also ends when the context fails or is
  // destroyed, because then nothing of it runs any more. CUDA_ERROR_ILLEGAL_ADDRESS: the value
  // cannot be read.
  CUresult Wait(const Context& context, const AwaitedValue& awaited);

  // Called after each command that may have written memory. Cheap if no stream waits for a value.
  void MemoryChanged();

 private:
  using Clock = std::chrono::steady_clock;

  struct Waiter {
    const Context& context;
    const AwaitedValue& awaited;
    CUresult result = CUDA_SUCCESS;
    bool over = false;
    std::condition_variable wake{};

    bool Check();
  };

  void Sleep(std::unique_lock<std::mutex>* lock);
  void CheckAll();
  void Leave(std::list<Waiter*>::iterator place);

  std::mutex mutex_;
  std::list<Waiter*> waiters_;
  Waiter* watcher_ = nullptr;
  Clock::time_point checked_;
  Clock::duration interval_{};
  std::atomic<size_t> waiting_{0};    // entries of waiters_
  std::atomic<bool> changed_{false};  // since the last round began
};

}  // namespace rgpu::emu
