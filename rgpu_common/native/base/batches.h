// Checks of calls that take many operations at once. The shim and the emulated device refuse the
// same ones.
#pragma once

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

// The attributes of cuMemcpyBatchAsync. Each holds for the copies from `firsts[i]` to the next
// attribute's first one.
inline CUresult CheckCopyAttributes(const CUmemcpyAttributes* attributes, const size_t* firsts,
                                    size_t count, size_t copies) {
  if (count > copies || firsts[0] != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const bool ordered = firsts[i] < copies && (i == 0 || firsts[i] > firsts[i - 1]);
    const bool known = attributes[i].srcAccessOrder >= CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
                       attributes[i].srcAccessOrder <= CU_MEMCPY_SRC_ACCESS_ORDER_ANY &&
                       attributes[i].flags <= CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    if (!ordered || !known) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The condition of cuStreamWaitValue. A flush of remote writes is refused: attribute 98 is 0.
inline CUresult CheckWaitFlags(unsigned flags) {
  if ((flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  return flags > CU_STREAM_WAIT_VALUE_NOR ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

// One operation of cuStreamBatchMemOp, without its address.
inline CUresult CheckMemoryOperation(const CUstreamBatchMemOpParams& params) {
  bool known = false;
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      return CheckWaitFlags(params.waitValue.flags);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      known = params.writeValue.flags <= CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
      break;
    case CU_STREAM_MEM_OP_BARRIER:
      known = params.memoryBarrier.flags <= CU_STREAM_MEMORY_BARRIER_TYPE_GPU;
      break;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      break;
  }
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// The bytes of the value of an operation that passed the check. 0: it has none.
inline uint32_t WidthOf(const CUstreamBatchMemOpParams& params) {
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
      return 4;
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace rgpu::base
