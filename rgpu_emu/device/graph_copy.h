// Copies of graph nodes: boxes of rows in linear memory.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/copy.h"

namespace rgpu::emu {

// The first slice, and how to come to the next ones.
struct BoxPlan {
  CopyPlan slice;
  uint64_t depth = 1;
  uint64_t dst_step = 0;
  uint64_t src_step = 0;
};

// Checks the geometry and the memory of both sides.
CUresult PlanBox(const CUDA_MEMCPY3D& copy, BoxPlan* plan);
// Moves the bytes. CUDA_ERROR_ILLEGAL_ADDRESS: a side is gone.
CUresult MoveBox(const BoxPlan& plan);

}  // namespace rgpu::emu
