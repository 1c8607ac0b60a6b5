// Operations on one word of memory in stream order: waits for a value, and writes of a value.
#pragma once

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/context.h"

namespace rgpu::emu {

// The parameters of one operation, as cuStreamBatchMemOp takes them.
using MemoryOperation = CUstreamBatchMemOpParams;

// Checks the operation, and that its word exists.
CUresult CheckOperation(const MemoryOperation& operation);

// Carries it out. A wait ends when its condition holds, or when the context fails.
CUresult RunOperation(const Context& context, const MemoryOperation& operation);

}  // namespace rgpu::emu
