// Calls cuMemAlloc, cuMemFree and queries about memory.
#include "rgpu_emu/device/memory.h"

#include "rgpu_common/native/base/box_copy.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

constexpr uint64_t kPitchAlignment = 512;

}  // namespace

AllocationRef AllocateHard(uint64_t bytes, uint64_t context, MemoryKind kind) {
  Device& device = TheDevice();
  device.limbo.Reap();
  AllocationRef allocation = device.arena.Allocate(bytes, kind, context);
  if (allocation != nullptr || bytes > device.arena.capacity()) return allocation;
  TrimPools(0);
  allocation = device.arena.Allocate(bytes, kind, context);
  while (allocation == nullptr && device.limbo.WaitOldest()) {
    allocation = device.arena.Allocate(bytes, kind, context);
  }
  return allocation;
}

CUresult FreeAllocation(Context& context, const AllocationRef& allocation) {
  if (!TheDevice().arena.Hide(allocation)) return CUDA_ERROR_INVALID_VALUE;
  FreeHidden(context, allocation);
  return CUDA_SUCCESS;
}

void FreeHidden(Context& context, const AllocationRef& allocation) {
  Device& device = TheDevice();
  Fences pending = context.Pending();
  const auto owner = device.contexts.Find(allocation->context);
  if (owner != nullptr && owner.get() != &context) {
    for (Fence& fence : owner->Pending()) pending.push_back(std::move(fence));
  }
  if (Hostile()) WaitAll(pending);
  if (allocation->pool != nullptr) {
    allocation->pool->Free(allocation, nullptr, std::move(pending));
  } else {
    device.limbo.Retire(allocation, std::move(pending));
  }
  device.limbo.Reap();
}

CUresult AllocateMemory(uint64_t bytes, MemoryKind kind, CUdeviceptr* dptr) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  const AllocationRef allocation = AllocateHard(bytes, context->handle, kind);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *dptr = allocation->base;
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  return AllocateMemory(bytesize, MemoryKind::kDevice, dptr);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes) {
  const bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (!element) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t pitch = (WidthInBytes + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
  uint64_t bytes = 0;
  if (pitch < WidthInBytes || pitch > base::kMaxPitch) return CUDA_ERROR_INVALID_VALUE;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = emu::cuMemAlloc_v2(dptr, bytes);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

CUresult cuMemFree_v2(CUdeviceptr dptr) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  if (dptr == 0) return CUDA_SUCCESS;
  CUresult freed = CUDA_SUCCESS;
  if (graph::FreeGraphMemory(Graphs(), dptr, &freed)) return freed;
  const AllocationRef allocation = TheDevice().arena.Find(dptr);
  if (allocation == nullptr || allocation->base != dptr) return CUDA_ERROR_INVALID_VALUE;
  switch (allocation->kind) {
    case MemoryKind::kManaged:
      ForgetAdvice(*allocation);
      [[fallthrough]];
    case MemoryKind::kDevice:
    case MemoryKind::kPool:
      return FreeAllocation(*context, allocation);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuMemGetInfo_v2(size_t* free, size_t* total) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  Device& device = TheDevice();
  device.limbo.Reap();
  const uint64_t used = device.services->UsedBesideHeap();
  if (total != nullptr) *total = device.arena.capacity();
  if (free != nullptr) *free = device.arena.capacity() - used;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  const AllocationRef allocation = TheDevice().arena.Find(dptr);
  if (allocation == nullptr) return CUDA_ERROR_NOT_FOUND;
  if (pbase != nullptr) *pbase = allocation->base;
  if (psize != nullptr) *psize = allocation->bytes;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
