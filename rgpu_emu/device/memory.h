// Freeing of device and host memory.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

// Makes `allocation` unknown to the program. Its pages are freed when the pending work of `context`
// and of the allocation's owner is done.
CUresult FreeAllocation(Context& context, const AllocationRef& allocation);

}  // namespace rgpu::emu
