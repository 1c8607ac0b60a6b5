// Launches: packing of parameters, checks, and the command that runs a grid in a stream.
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

// Checks what the call itself must report: dimensions, threads, shared memory, and whether all
// blocks of a cooperative grid can run at the same time.
CUresult CheckShape(const Function& function, const LaunchShape& shape);

// Compiles the kernel at its first use and appends the launch to the stream.
CUresult PushLaunch(const std::shared_ptr<Function>& function,
                    const std::shared_ptr<Stream>& stream, const LaunchShape& shape,
                    std::vector<uint8_t> params);

}  // namespace rgpu::emu
