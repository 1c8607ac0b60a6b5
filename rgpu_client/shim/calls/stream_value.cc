// Commands by which a stream waits for a value in device memory, or writes one.
#include <span>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/calls/pinned_params.h"
#include "rgpu_client/shim/calls/stream_values.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/paged/active.h"
#include "rgpu_client/shim/session.h"
#include "rgpu_common/native/base/batches.h"

namespace rgpu::shim {
namespace {

// Checks that `*address` is known device memory aligned to `width`. The device's own address takes
// the place of an address in page-locked memory.
CUresult CheckAddress(const Here& here, uint64_t* address, uint32_t width) {
  const Device& device = *here.session->devices().Find(here.context->device);
  if (width == 8 && device.Attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS) == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (const CUresult status = UseImage(here, address); status != CUDA_SUCCESS) return status;
  const bool known = here.session->addresses().MayAccess(*address, width);
  return known && *address % width == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Finds the stream, and checks the address as above.
CUresult Check(CUstream stream, uint64_t* address, uint32_t width, Here* here) {
  if (const CUresult status = StreamHere(stream, here); status != CUDA_SUCCESS) return status;
  return CheckAddress(*here, address, width);
}

// For a call with these operations. True: it is over, and returns `*status`.
bool CapturedOperations(const Here& here, std::span<const CUstreamBatchMemOpParams> operations,
                        CUresult* status) {
  return Captured(here, status, [&](graph::Params* params) {
    *params = graph::BatchParams{
        MakeHandle<CUcontext>(here.context->id), 0, {operations.begin(), operations.end()}};
    return CUDA_SUCCESS;
  });
}

// Waits and writes have the same layout.
CUstreamBatchMemOpParams Operation(CUstreamBatchMemOpType type, CUdeviceptr address, uint64_t value,
                                   unsigned flags) {
  CUstreamBatchMemOpParams params{};
  params.operation = type;
  params.waitValue.address = address;
  params.waitValue.value64 = value;
  params.waitValue.flags = flags;
  return params;
}

CUresult WaitValue(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned flags,
                   uint32_t width) {
  Here here;
  if (const CUresult bad = base::CheckWaitFlags(flags); bad != CUDA_SUCCESS) return bad;
  uint64_t device = addr;
  if (const CUresult status = Check(stream, &device, width, &here); status != CUDA_SUCCESS) {
    return status;
  }
  CUresult over = CUDA_SUCCESS;
  const auto type = width == 4 ? CU_STREAM_MEM_OP_WAIT_VALUE_32 : CU_STREAM_MEM_OP_WAIT_VALUE_64;
  const auto one = Operation(type, addr, value, flags);
  if (CapturedOperations(here, {&one, 1}, &over)) return over;
  PostOptions options = Work(here);
  if (PagedHas(kMirrors)) here.session->paged().BeforeValueWait(here, device, width);
  uint64_t seq = 0;
  options.seq = &seq;
  const CUresult status = here.channel().Post<op_rgpuStreamWaitValue>(
      here.issuer(), {here.stream->wire, device, value, flags, width}, options);
  // Until this wait is known to be complete, the program may still change pinned memory that a
  // later copy reads.
  if (status == CUDA_SUCCESS) StartHostOrder(here, seq);
  return status;
}

CUresult WriteValue(CUstream stream, CUdeviceptr addr, uint64_t value, unsigned flags,
                    uint32_t width) {
  Here here;
  uint64_t device = addr;
  if (const CUresult status = Check(stream, &device, width, &here); status != CUDA_SUCCESS) {
    return status;
  }
  CUresult over = CUDA_SUCCESS;
  const auto type = width == 4 ? CU_STREAM_MEM_OP_WRITE_VALUE_32 : CU_STREAM_MEM_OP_WRITE_VALUE_64;
  const auto one = Operation(type, addr, value, flags);
  if (CapturedOperations(here, {&one, 1}, &over)) return over;
  return here.channel().Post<op_rgpuStreamWriteValue>(
      here.issuer(), {here.stream->wire, device, value, flags, width}, Work(here));
}

using Params = CUstreamBatchMemOpParams;

bool IsWait(const Params& params) {
  return params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
         params.operation == CU_STREAM_MEM_OP_WAIT_VALUE_64;
}

}  // namespace

CUresult CheckOperation(const Here& here, const CUstreamBatchMemOpParams& params) {
  if (const CUresult bad = base::CheckMemoryOperation(params); bad != CUDA_SUCCESS) return bad;
  const uint32_t width = base::WidthOf(params);
  uint64_t address = params.waitValue.address;
  return width == 0 ? CUDA_SUCCESS : CheckAddress(here, &address, width);
}

// The operations are sent one by one: the stream keeps their order. All are checked before the
// first is sent.
CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                               CUstreamBatchMemOpParams* paramArray, unsigned int) {
  Here here;
  if (const CUresult bad = StreamHere(stream, &here); bad != CUDA_SUCCESS) return bad;
  for (unsigned i = 0; i < count; ++i) {
    if (const CUresult bad = CheckOperation(here, paramArray[i]); bad != CUDA_SUCCESS) return bad;
  }
  bool barrier = false;
  CUresult status = CUDA_SUCCESS;
  if (CapturedOperations(here, {paramArray, count}, &status)) return status;
  for (unsigned i = 0; i < count && status == CUDA_SUCCESS; ++i) {
    const Params& params = paramArray[i];
    const uint32_t width = base::WidthOf(params);
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
