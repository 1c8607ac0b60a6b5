// The two sides of a CUDA_MEMCPY3D.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

// One side: rows `pitch` bytes apart, and slices of rows `slice` bytes apart.
struct CopySide {
  uint64_t address = 0;  // of the first byte
  uint64_t pitch = 0;
  uint64_t slice = 0;
  bool host = false;
};

struct CopySides {
  CopySide to;
  CopySide from;
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t depth = 1;

  // Slice `z` of a side in host memory.
  HostRegion RegionOf(const CopySide& side, uint64_t z) const {
    return {reinterpret_cast<uint8_t*>(side.address + z * side.slice), width, height,
            height > 1 ? side.pitch : width};
  }
};

// Finds both sides, and checks that a device side lies in known memory and that rows do not
// overlap. CUDA_ERROR_NOT_SUPPORTED: a side is an array.
CUresult FindSides(const Here& here, const CUDA_MEMCPY3D& copy, CopySides* sides);

}  // namespace rgpu::shim
