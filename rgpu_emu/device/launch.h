// Launches: packing of parameters, checks, and the command that runs a grid in a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "rgpu_common/native/graph/params.h"
#include "rgpu_emu/device/exec/grid.h"
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

// Applies an attribute of a launch. Hints are accepted. An attribute that would change the result
// is applied or refused.
CUresult ApplyAttribute(const CUlaunchAttribute& attribute, LaunchShape* shape);

// Everything that a launch needs. It may run many times.
struct ReadyLaunch {
  std::shared_ptr<Module> module;
  std::shared_ptr<const Kernel> kernel;
  std::vector<uint8_t> params;
  Launch launch;
};

// Compiles the kernel at its first use, and checks and reserves the memory that it needs.
CUresult PrepareLaunch(const std::shared_ptr<Function>& function, const LaunchShape& shape,
                       std::vector<uint8_t> params, std::shared_ptr<const ReadyLaunch>* ready);
// Runs the grid and returns when it has ended. The result is a sticky error.
CUresult RunLaunch(const ReadyLaunch& ready);

// Prepares the launch and appends it to the stream, or to the graph into which the stream captures:
// then with `attributes` too.
CUresult PushLaunch(const std::shared_ptr<Function>& function,
                    const std::shared_ptr<Stream>& stream, const LaunchShape& shape,
                    std::vector<uint8_t> params, const graph::Attributes& attributes = {});

}  // namespace rgpu::emu
