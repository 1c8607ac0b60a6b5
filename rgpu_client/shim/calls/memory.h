// Allocations that several files make.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// Allocates device memory, and takes note of its addresses.
CUresult AllocateDevice(const Here& here, uint64_t bytes, CUdeviceptr* dptr);

}  // namespace rgpu::shim
