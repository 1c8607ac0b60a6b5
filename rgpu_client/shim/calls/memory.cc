// Device memory: allocation and free, also from pools, and cuMemGetInfo.
#include "rgpu_client/shim/calls/memory.h"
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/contexts.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_client/shim/graphs/memory.h"

namespace rgpu::shim {
namespace {

// A free of at least this size is sent at once, because another process of the lease may wait for
// the memory.
constexpr uint64_t kPromptFreeBytes = 1U << 20;

CUresult Remember(const Here& here, uint64_t base, uint64_t bytes, RangeKind kind, uint64_t pool) {
  Range range;
  range.base = base;
  range.bytes = bytes;
  range.kind = kind;
  range.context = here.context_id();
  range.device = here.context->device;
  range.pool = pool;
  // A server that gives an address outside the band, or one that is in use, is faulty or hostile:
  // the session ends.
  if (here.session->AcceptAddresses(base, bytes) && here.session->addresses().Add(range)) {
    return CUDA_SUCCESS;
  }
  here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                           "the server gave an address outside its band or one in use");
  return CUDA_ERROR_EXTERNAL_DEVICE;
}

}  // namespace

CUresult AllocateDevice(const Here& here, uint64_t bytes, CUdeviceptr* dptr) {
  rgpuMemAlloc_Reply reply;
  CUresult status = here.channel().Call<op_rgpuMemAlloc>(here.issuer(), {bytes}, &reply);
  if (status == CUDA_SUCCESS) status = Remember(here, reply.dptr, bytes, RangeKind::kDevice, 0);
  if (status == CUDA_SUCCESS) *dptr = reply.dptr;
  return status;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  return AllocateDevice(here, bytesize, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  Here here;
  const bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (!element) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  rgpuMemAllocPitch_Reply reply;
  CUresult status = here.channel().Call<op_rgpuMemAllocPitch>(
      here.issuer(), {WidthInBytes, Height, ElementSizeBytes}, &reply);
  if (status != CUDA_SUCCESS) return status;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(reply.pitch, Height, &bytes)) return CUDA_ERROR_UNKNOWN;
  status = Remember(here, reply.dptr, bytes, RangeKind::kDevice, 0);
  if (status != CUDA_SUCCESS) return status;
  *dptr = reply.dptr;
  *pPitch = reply.pitch;
  return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  Here here = AnyHere();
  if (dptr == 0) return CUDA_SUCCESS;
  CUresult over = CheckUnsafe();
  if (over != CUDA_SUCCESS || FreeOfGraph(dptr, &over)) return over;
  const auto range = here.session->addresses().Take(dptr, RangeKind::kDevice, RangeKind::kPool);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  here.context = here.session->handles().Find<Context>(range->context);
  if (here.context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult status = here.channel().Post<op_rgpuMemFree>(here.issuer(), {dptr});
  if (range->bytes >= kPromptFreeBytes) here.channel().Flush();
  return status;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto range = here.session->addresses().Find(dptr);
  if (!range) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = range->base;
  if (psize != nullptr) *psize = range->bytes;
  return CUDA_SUCCESS;
}

CUresult AllocateFromPool(const Here& here, uint64_t pool_handle, uint64_t bytes,
                          CUdeviceptr* dptr) {
  Pool* pool = here.session->handles().Find<Pool>(pool_handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult over = CUDA_SUCCESS;
  const bool captured = Captured(here, &over, [&](graph::Params* params) {
    return MakeAllocNode(pool->device, bytes, dptr, params);
  });
  if (captured) return over;
  rgpuPoolAlloc_Reply reply;
  CUresult status = here.channel().Call<op_rgpuPoolAlloc>(
      here.issuer(), {pool->wire, bytes, here.stream->wire}, &reply);
  if (status == CUDA_SUCCESS) {
    MarkSynced(here.context->work_seq, here.thread->reported_seq);
    status = Remember(here, reply.dptr, bytes, RangeKind::kPool, pool->id);
  }
  if (status == CUDA_SUCCESS) *dptr = reply.dptr;
  return status;
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  const Device& device = *here.session->devices().Find(here.context->device);
  return AllocateFromPool(here, device.current_pool.load(), bytesize, dptr);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  return AllocateFromPool(here, HandleValue(pool), bytesize, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  if (dptr == 0) return CUDA_SUCCESS;
  CUresult over = CUDA_SUCCESS;
  const bool captured = Captured(here, &over, [&](graph::Params* params) {
    *params = graph::FreeParams{dptr};
    return graph::IsGraphMemory(Graphs(), dptr) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  });
  if (captured || FreeOfGraph(dptr, &over)) return over;
  const auto range = here.session->addresses().Take(dptr, RangeKind::kPool, RangeKind::kDevice);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return here.channel().Post<op_rgpuPoolFree>(here.issuer(), {dptr, here.stream->wire}, Work(here));
}

}  // namespace rgpu::shim
