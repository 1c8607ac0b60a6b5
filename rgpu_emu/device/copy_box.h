// Copies with rows and slices, and with arrays.
#pragma once

#include "rgpu_common/native/base/box_copy.h"
#include "rgpu_emu/device/copy.h"

namespace rgpu::emu {

// Finds both sides and checks the geometry and the memory.
CUresult PlanOf(const base::BoxCopy& box, CopyPlan* plan);

// The parameters of the node that makes this copy.
CUDA_MEMCPY3D ParamsOf(const base::BoxCopy& box);

}  // namespace rgpu::emu
