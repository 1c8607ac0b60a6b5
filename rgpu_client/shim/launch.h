// Packs the parameters that a program passes to a launch, and makes the checks whose failure the
// launch call itself must return.
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

// The limits of the device that a launch must keep.
struct LaunchLimits {
  std::array<unsigned, 3> grid{};
  std::array<unsigned, 3> block{};
  unsigned threads = 0;
  unsigned shared_bytes = 0;  // of a function that has not asked for more
  unsigned registers = 0;     // of one block
};

// CUDA_ERROR_INVALID_VALUE: a dimension is 0 or too large, the shared memory is too large, or the
// block has more threads than the function was compiled for (.maxntid), or is not the one that it
// demands (.reqntid).
// CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: the block's threads need more registers than a block may
// have.
CUresult CheckGeometry(const Geometry& geometry, const Function& function,
                       const LaunchLimits& limits);

// The parameter bytes of a launch. They lie in `buffer`, whose capacity is reused, or in the
// program's own buffer if it passed one in `extra`.
struct PackedParams {
  const void* data = nullptr;
  uint32_t bytes = 0;
};
CUresult PackParams(const Function& function, void** kernelParams, void** extra,
                    std::vector<uint8_t>* buffer, PackedParams* packed);

}  // namespace rgpu::shim
