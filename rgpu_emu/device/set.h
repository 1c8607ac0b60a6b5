// Sets: `height` rows of `width` elements of one value.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/copy.h"

namespace rgpu::emu {

struct SetPlan {
  uint64_t dst = 0;
  uint64_t pitch = 0;
  uint64_t width = 0;  // elements
  uint64_t height = 1;
  uint32_t value = 0;
  uint32_t element = 1;  // bytes
};

// Checks the geometry and that the memory exists. `*kind` is kInvalid if there is nothing to set.
CUresult CheckSet(const SetPlan& plan, PointerKind* kind);

// Writes the value. CUDA_ERROR_ILLEGAL_ADDRESS: the memory was freed meanwhile.
CUresult Fill(SetPlan plan);

}  // namespace rgpu::emu
