// Errors of posted commands. Each is kept until the thread that caused it makes a call that may
// report errors.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "rgpu_server/executor/command.h"

namespace rgpu::exec {

class DeferredErrors {
 public:
  // Keeps the first error of (context, thread).
  void Keep(uint32_t context, uint32_t thread, CUresult error);
  // Takes the thread's error, or else one of a thread that has ended. CUDA_SUCCESS: there is none.
  CUresult Take(uint32_t context, uint32_t thread);
  // Takes the errors of all threads in the context and returns the oldest.
  CUresult TakeAll(uint32_t context);
  // The thread has ended: any thread of the context may report its error from now on.
  void ThreadGone(uint32_t thread);
  void DropContext(uint32_t context);
  bool empty() const { return slots_.empty(); }

 private:
  struct Slot {
    CUresult error;
    uint64_t order;
  };
  // Thread 0: errors of threads that have ended.
  std::map<std::pair<uint32_t, uint32_t>, Slot> slots_;
  uint64_t order_ = 0;
};

}  // namespace rgpu::exec
