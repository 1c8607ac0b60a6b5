// Functions and kernels as operands.
#pragma once

#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {

// A CUkernel may stand where a CUfunction is wanted.
template <typename Handle>
Function* FindFunction(Handle handle) {
  return CurrentSession()->handles().Find<Function>(reinterpret_cast<uint64_t>(handle));
}

// On the wire a function and a kernel are two fields, one of which is 0.
inline uint64_t FunctionOperand(const Function& function) {
  return function.is_kernel ? 0 : function.id;
}
inline uint64_t KernelOperand(const Function& function) {
  return function.is_kernel ? function.id : 0;
}

// Blocks of `block_size` threads that one multiprocessor holds; asked once per function and
// arguments.
CUresult MaxActiveBlocks(const Here& here, Function& function, int block_size, uint64_t dynamic,
                         uint32_t flags, int* blocks);

}  // namespace rgpu::shim
