// Managed memory. Advice, prefetches to the host and attachments to streams have no effect but to
// be remembered: the host may use the memory whenever it likes (ADR 0019).
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/copies.h"
#include "rgpu_client/shim/calls/visible_memory.h"
#include "rgpu_client/shim/entry.h"

namespace rgpu::shim {
namespace {

// Finds the current context, and checks that the addresses lie in managed memory.
CUresult ManagedHere(CUdeviceptr address, size_t bytes, Here* here) {
  if (const CUresult status = ContextHere(here); status != CUDA_SUCCESS) return status;
  const auto range = here->session->addresses().Find(address, bytes);
  const bool managed = range && range->kind == RangeKind::kManaged;
  return managed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckLocation(const CUmemLocation& location) {
  return base::IsLocation(location, IsDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  uint64_t address = 0;
  const CUresult status =
      AllocateVisible(here, bytesize, RangeKind::kManaged, flags, &address);
  if (status == CUDA_SUCCESS) *dptr = address;
  return status;
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int, CUstream hStream) {
  Here here;
  CUresult status = ManagedHere(devPtr, count, &here);
  if (status == CUDA_SUCCESS) status = StreamHere(hStream, &here);
  if (status == CUDA_SUCCESS) status = CheckLocation(location);
  if (status != CUDA_SUCCESS) return status;
  // What the program has written is sent now instead of with the next command.
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    UseDeviceMemory(here, {devPtr, count, true}, count, 1, false);
  }
  return here.session->advice().Prefetch(devPtr, count, location);
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  Here here;
  CUresult status = ManagedHere(devPtr, count, &here);
  if (status == CUDA_SUCCESS && base::NeedsLocation(advice)) status = CheckLocation(location);
  return status == CUDA_SUCCESS ? here.session->advice().Advise(devPtr, count, advice, location)
                                : status;
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  Here here;
  const CUresult status = ManagedHere(devPtr, count, &here);
  return status == CUDA_SUCCESS
             ? here.session->advice().Get(data, dataSize, attribute, devPtr, count)
             : status;
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  Here here;
  CUresult status = ManagedHere(devPtr, count, &here);
  for (size_t i = 0; i < numAttributes && status == CUDA_SUCCESS; ++i) {
    status = data[i] == nullptr ? CUDA_ERROR_INVALID_VALUE
                                : here.session->advice().Get(data[i], dataSizes[i], attributes[i],
                                                             devPtr, count);
  }
  return status;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  Here here;
  if (const CUresult status = StreamHere(hStream, &here); status != CUDA_SUCCESS) return status;
  const auto range = here.session->addresses().Find(dptr);
  if (!range || range->kind != RangeKind::kManaged) return CUDA_ERROR_INVALID_VALUE;
  const CUresult bad = base::CheckAttachment(flags, hStream == nullptr, dptr - range->base, length,
                                             range->bytes);
  return bad == CUDA_SUCCESS ? here.channel().sticky() : bad;
}

}  // namespace rgpu::shim
