// Launches.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_emu/device/module.h"

namespace rgpu::emu {

struct LaunchShape {
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t dynamic_shared = 0;
  bool cooperative = false;
};

// Copies the parameter bytes out of `kernelParams` or `extra`, as cuLaunchKernel takes them.
CUresult PackParams(const EntryInfo& entry, void** kernel_params, void** extra,
                    std::vector<uint8_t>* params);

// Checks everything that a program learns at the call: dimensions, threads, shared memory,
// residency.
CUresult CheckShape(const Function& function, const LaunchShape& shape);

// Compiles on first use and appends to the stream.
CUresult PushLaunch(const std::shared_ptr<Function>& function,
                    const std::shared_ptr<Stream>& stream, const LaunchShape& shape,
                    std::vector<uint8_t> params);

}  // namespace rgpu::emu
