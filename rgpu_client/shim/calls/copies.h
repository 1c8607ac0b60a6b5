// Copies between host and device, in frames; used by all copy functions.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

// One side of a copy: `height` rows of `width` bytes, `pitch` bytes apart.
struct Side {
  uint64_t address = 0;
  uint64_t pitch = 0;
  bool device = false;
};

struct Copy {
  Side to;
  Side from;
  uint64_t width = 0;
  uint64_t height = 1;
  bool synchronous = true;
};

// Checks both sides and carries the copy out in here.stream.  Device sides must lie in known ranges
// (CUDA_ERROR_INVALID_VALUE).  Host to host is done here and now.
CUresult RunCopy(const Here& here, const Copy& copy);

// True if rows of `width` bytes, `pitch` apart, lie in one range that `device` fits.
bool IsKnownDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height);

}  // namespace rgpu::shim
