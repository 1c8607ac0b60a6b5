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

// Allocates device memory. Before it returns null, it frees everything that is unused but not given
// back yet.
AllocationRef AllocateHard(uint64_t bytes, uint64_t context, MemoryKind kind = MemoryKind::kDevice);

}  // namespace rgpu::emu
