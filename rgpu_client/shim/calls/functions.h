// Functions and kernels as operands.
#pragma once

#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/launch.h"

namespace rgpu::shim {

// Finds a function or a kernel: CUDA allows a CUkernel in place of a CUfunction.
template <typename Handle>
Function* FindFunction(Handle handle) {
  const auto value = reinterpret_cast<uint64_t>(handle);
  Session& session = *SessionOf(value);
  return session.handles().Find<Function>(value);
}

// A command has a field for a function and a field for a kernel; one of them is 0.
inline uint64_t FunctionOperand(const Function& function) {
  return function.is_kernel ? 0 : function.id;
}
inline uint64_t KernelOperand(const Function& function) {
  return function.is_kernel ? function.id : 0;
}

// Sets `*blocks` to the number of blocks of `block_size` threads that one multiprocessor holds. The
// worker is asked once for each function and arguments.
CUresult MaxActiveBlocks(const Here& here, Function& function, int block_size, uint64_t dynamic,
                         uint32_t flags, int* blocks);

// The checks whose failure a launch call itself must return.
CUresult CheckLaunch(const Here& here, Function& function, const Geometry& geometry,
                     bool cooperative);
// The same for a cluster dimension: this release cannot send clusters of several blocks.
CUresult CheckCluster(const CUlaunchAttributeValue& value);

}  // namespace rgpu::shim
