// Commands by which a stream waits for a value in device memory, or writes one.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"

namespace rgpu::shim {
namespace {

constexpr unsigned kWaitFlags = CU_STREAM_WAIT_VALUE_GEQ | CU_STREAM_WAIT_VALUE_EQ |
                                CU_STREAM_WAIT_VALUE_AND | CU_STREAM_WAIT_VALUE_NOR;

// Finds the stream, and checks that `address` is known device memory aligned to `width`.
CUresult Check(CUstream stream, CUdeviceptr address, uint32_t width, Here* here) {
  if (const CUresult status = StreamHere(stream, here); status != CUDA_SUCCESS) return status;
  const Device& device = *here->session->devices().Find(here->context->device);
  if (width == 8 && device.Attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  const bool known = here->session->addresses().MayAccess(address, width);
  if (!known || address % width != 0) return CUDA_ERROR_INVALID_VALUE;
  return CUDA_SUCCESS;
}

CUresult WaitValue(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned flags,
                   uint32_t width) {
  Here here;
  const bool flush = (flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0;
  if (flush || (flags & ~kWaitFlags) != 0) {
    return flush ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult status = Check(stream, addr, width, &here); status != CUDA_SUCCESS) {
    return status;
  }
  PostOptions options = Work(here);
  uint64_t seq = 0;
  options.seq = &seq;
  const CUresult status = here.channel().Post<op_rgpuStreamWaitValue>(
      here.issuer(), {here.stream->wire, addr, value, flags, width}, options);
  // Until this wait is known to be complete, the program may still change pinned memory that a
  // later copy reads.
  if (status == CUDA_SUCCESS) StartHostOrder(here, seq);
  return status;
}

CUresult WriteValue(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned flags,
                    uint32_t width) {
  Here here;
  if (const CUresult status = Check(stream, addr, width, &here); status != CUDA_SUCCESS) {
    return status;
  }
  return here.channel().Post<op_rgpuStreamWriteValue>(
      here.issuer(), {here.stream->wire, addr, value, flags, width}, Work(here));
}

using Params = CUstreamBatchMemOpParams;

// Checks one operation of a batch, without its address.
CUresult CheckOperation(const Params& params) {
  constexpr unsigned kWriteFlags = CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  switch (params.operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32:
    case CU_STREAM_MEM_OP_WAIT_VALUE_64:
      if ((params.waitValue.flags & CU_STREAM_WAIT_VALUE_FLUSH) != 0) {
        return CUDA_ERROR_NOT_SUPPORTED;
      }
      return (params.waitValue.flags & ~kWaitFlags) != 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_WRITE_VALUE_32:
    case CU_STREAM_MEM_OP_WRITE_VALUE_64:
      return (params.writeValue.flags & ~kWriteFlags) != 0 ? CUDA_ERROR_INVALID_VALUE
                                                           : CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_BARRIER:
      return params.memoryBarrier.flags > CU_STREAM_MEMORY_BARRIER_TYPE_GPU
                 ? CUDA_ERROR_INVALID_VALUE
                 : CUDA_SUCCESS;
    case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:  // attribute 98 is 0
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

bool IsWait(const Params& params) {
  return params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

// The bytes of an operation's value. 0: it has none.
uint32_t WidthOf(const Params& params) {
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

}  // namespace

// The operations are sent one by one: the stream keeps their order. All are checked before the
// first is sent.
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int) {
  Here here;
  if (const CUresult bad = StreamHere(stream, &here); bad != CUDA_SUCCESS) return bad;
  for (unsigned i = 0; i < count; ++i) {
    const Params& params = paramArray[i];
    if (const CUresult bad = CheckOperation(params); bad != CUDA_SUCCESS) return bad;
    const uint32_t width = WidthOf(params);
    if (width == 0) continue;
    const CUresult bad = Check(stream, params.waitValue.address, width, &here);
    if (bad != CUDA_SUCCESS) return bad;
  }
  bool barrier = false;
  CUresult status = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && status == CUDA_SUCCESS; ++i) {
    const Params& params = paramArray[i];
    const uint32_t width = WidthOf(params);
    if (width == 0) {
      barrier = true;
      continue;
    }
    // Waits and writes have the same layout.
    const auto& word = params.waitValue;
    const uint64_t value = width == 4 ? word.value : word.value64;
    if (IsWait(params)) {
      status = WaitValue(stream, word.address, value, word.flags, width);
    } else {
      // A write with a barrier of its own makes everything before it visible.
      status = WriteValue(stream, word.address, value, barrier ? 0 : word.flags, width);
    }
  }
  return status;
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                unsigned int flags) {
  return WaitValue(stream, addr, value, flags, 4);
}

CUresult cuStreamWaitValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                unsigned int flags) {
  return WaitValue(stream, addr, value, flags, 8);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr addr, cuuint32_t value,
                                 unsigned int flags) {
  return WriteValue(stream, addr, value, flags, 4);
}

CUresult cuStreamWriteValue64_v2(CUstream stream, CUdeviceptr addr, cuuint64_t value,
                                 unsigned int flags) {
  return WriteValue(stream, addr, value, flags, 8);
}

}  // namespace rgpu::shim
