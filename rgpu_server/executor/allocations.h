// Functions that the handlers of memory share.
#pragma once

#include <cstdint>
#include <memory>

#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/executor.h"

namespace rgpu::exec {

// Lets the driver allocate `bytes`, without the executor's lock and while no load is measured. If
// the device is full, waits for pending frees and tries once more.
template <typename Allocate>
CUresult AllocateTwice(Executor& executor, uint64_t bytes, Allocate allocate) {
  const auto run = [&] {
    const MemoryAccount::Change change(executor.memory());
    return executor.Unlocked(allocate);
  };
  CUresult result = run();
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  executor.reaper().WaitAll();
  executor.memory().ReconcilePools();
  result = run();
  if (result == CUDA_ERROR_OUT_OF_MEMORY) executor.memory().DeviceIsFull(bytes);
  return result;
}

// Frees the plain allocation at `base`, which the caller has taken out of the table of ranges, for
// `command`. The driver frees the memory when the work issued so far in `context` (where the free
// was called) and in the allocation's own context is complete.
void FreePlain(Executor& executor, const Command& command, const std::shared_ptr<Context>& context,
               uint64_t base, const Range& range);
// Counts one allocation of `pool` as freed. When the last allocation of a destroyed pool is freed,
// the pool itself is destroyed.
void LeavePool(Executor& executor, const std::shared_ptr<Pool>& pool);

}  // namespace rgpu::exec
