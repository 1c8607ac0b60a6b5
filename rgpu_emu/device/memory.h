// Allocation of device and managed memory, and freeing of these and of host memory.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

// Allocates memory of `kind` for the current context; waits for freed memory before it refuses.
CUresult AllocateMemory(uint64_t bytes, MemoryKind kind, CUdeviceptr* dptr);

// Forgets what the program advised for managed memory that is being freed.
void ForgetAdvice(const Allocation& allocation);

// Makes `allocation` unknown to the program. Its pages are freed when the pending work of `context`
// and of the allocation's owner is done.
CUresult FreeAllocation(Context& context, const AllocationRef& allocation);

}  // namespace rgpu::emu
