// Calls about managed memory. It lies in the arena like other memory, so the host uses it in place,
// and advice has no effect.
#include "rgpu_common/native/base/advice.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/memory.h"

namespace rgpu::emu {
namespace {

base::Advice& Advised() {
  // Never destroyed, because threads may outlive main.
  static auto* advised = new base::Advice;
  return *advised;
}

CUresult CheckManaged(CUdeviceptr address, uint64_t bytes) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  const AllocationRef allocation = TheDevice().arena.Find(address);
  const bool managed = allocation != nullptr && allocation->kind == MemoryKind::kManaged;
  return managed && allocation->Holds(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckLocation(const CUmemLocation& location) {
  return base::IsLocation(location, IsDevice) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

void ForgetAdvice(const Allocation& allocation) {
  Advised().Forget(allocation.base, allocation.bytes);
}

CUresult cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int) {
  return AllocateMemory(bytesize, MemoryKind::kManaged, dptr);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int, CUstream hStream) {
  std::shared_ptr<Stream> stream;
  CUresult result = FindStream(hStream, &stream);
  if (result == CUDA_SUCCESS) result = CheckManaged(devPtr, count);
  if (result == CUDA_SUCCESS) result = CheckLocation(location);
  return result == CUDA_SUCCESS ? Advised().Prefetch(devPtr, count, location) : result;
}

CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  CUresult result = CheckManaged(devPtr, count);
  if (result == CUDA_SUCCESS && base::NeedsLocation(advice)) result = CheckLocation(location);
  return result == CUDA_SUCCESS ? Advised().Advise(devPtr, count, advice, location) : result;
}

CUresult cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                CUdeviceptr devPtr, size_t count) {
  const CUresult result = CheckManaged(devPtr, count);
  return result == CUDA_SUCCESS ? Advised().Get(data, dataSize, attribute, devPtr, count) : result;
}

CUresult cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                 size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  CUresult result = CheckManaged(devPtr, count);
  for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; ++i) {
    result = data[i] == nullptr
                 ? CUDA_ERROR_INVALID_VALUE
                 : Advised().Get(data[i], dataSizes[i], attributes[i], devPtr, count);
  }
  return result;
}

CUresult cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  std::shared_ptr<Stream> stream;
  const CUresult result = FindStream(hStream, &stream);
  if (result != CUDA_SUCCESS) return result;
  if (const CUresult bad = CheckManaged(dptr, 1); bad != CUDA_SUCCESS) return bad;
  const AllocationRef allocation = TheDevice().arena.Find(dptr);
  return base::CheckAttachment(flags, hStream == nullptr, dptr - allocation->base, length,
                               allocation->bytes);
}

}  // namespace rgpu::emu
