// Copies between host and device. All copy functions use RunCopy.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/host_region.h"

namespace rgpu::shim {

// One side of a copy. Its rows begin `pitch` bytes apart.
struct Side {
  uint64_t address = 0;
  uint64_t pitch = 0;
  bool device = false;
};

// When the source of an asynchronous copy from the host may be read.
enum class SourceOrder : uint8_t {
  kByMemory,  // cuMemcpyAsync: pageable memory at the call, pinned memory also in stream order
  kStream,    // in stream order
  kAtCall,    // at the call
};

struct Copy {
  Side to;
  Side from;
  uint64_t width = 0;
  uint64_t height = 1;
  bool synchronous = true;
  SourceOrder source_order = SourceOrder::kByMemory;
};

// Checks both sides and makes the copy in here.stream. CUDA_ERROR_INVALID_VALUE: a device side does
// not lie in one known range. A copy from host to host is complete on return.
CUresult RunCopy(const Here& here, const Copy& copy);

// True if all rows of the side lie in one known range of device memory.
bool IsKnownDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height);

// True if a synchronous copy or set of the side is complete on return: the program asked for it
// (SYNC_MEMOPS), or uses the memory in place.
bool WaitsForMemops(const Here& here, const Side& side);

// Called before a command uses the side: what the program has written there in place is sent.
void UseDeviceMemory(const Here& here, const Side& side, uint64_t width, uint64_t height,
                     bool written);

}  // namespace rgpu::shim
