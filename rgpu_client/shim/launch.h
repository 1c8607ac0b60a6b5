// Packing a launch: parameter bytes out of what the program hands over, and the checks that must
// fail at the call.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gen/cuda_abi.gen.h"
#include "rgpu_client/shim/tables/objects.h"

namespace rgpu::shim {

struct Geometry {
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  unsigned shared_bytes = 0;
};

// What of the device a launch must respect.
struct LaunchLimits {
  std::array<unsigned, 3> grid{};
  std::array<unsigned, 3> block{};
  unsigned threads = 0;
  unsigned shared_bytes = 0;  // that a function may use without asking for more
  unsigned registers = 0;     // of one block
};

// CUDA_ERROR_INVALID_VALUE: a dimension is 0 or too large, or so is the shared memory, or the
// block has more threads than the function was compiled for (.maxntid);
// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: its threads need more registers than a block may have.
CUresult CheckGeometry(const Geometry& geometry, const Function& function,
                       const LaunchLimits& limits);

// Parameter bytes of a launch, in `buffer` (its capacity is reused) or where they lie already.
struct PackedParams {
  const void* data = nullptr;
  uint32_t bytes = 0;
};
CUresult PackParams(const Function& function, void** kernelParams, void** extra,
                    std::vector<uint8_t>* buffer, PackedParams* packed);

}  // namespace rgpu::shim
