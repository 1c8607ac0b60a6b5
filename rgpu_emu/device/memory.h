// What a pointer means, and freeing.
#pragma once

#include <cstdint>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

// Takes `allocation` away from the program; its pages go when the pending work of `context` and of
// its owner is done.
CUresult FreeAllocation(Context& context, const AllocationRef& allocation);

}  // namespace rgpu::emu
