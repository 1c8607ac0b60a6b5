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
  const auto range = here->session->addresses().Find(address, width);
  if (!range || !range->is_device() || address % width != 0) return CUDA_ERROR_INVALID_VALUE;
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

}  // namespace

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
