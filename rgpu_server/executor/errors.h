// Errors of posted commands, kept until the thread that caused them makes a call that may report
// them.
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
  // Takes the thread's error, else one of a thread that is gone.  CUDA_SUCCESS: none.
  CUresult Take(uint32_t context, uint32_t thread);
  // Takes the errors of all threads and returns the oldest.
  CUresult TakeAll(uint32_t context);
  // Its error waits for any thread of the context now.
  void ThreadGone(uint32_t thread);
  void DropContext(uint32_t context);
  bool empty() const { return slots_.empty(); }

 private:
  struct Slot {
    CUresult error;
    uint64_t order;
  };
  std::map<std::pair<uint32_t, uint32_t>, Slot> slots_;  // thread 0: of threads that are gone
  uint64_t order_ = 0;
};

}  // namespace rgpu::exec
