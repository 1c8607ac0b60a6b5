#include "rgpu_emu/device/host_memory.h"

#include "rgpu_common/native/base/ranges.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/memory.h"

namespace rgpu::emu {
namespace {

constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

uint64_t BytesOf(const RegisteredMemory::Range& range) { return range.bytes; }

AllocationRef HostAllocation(const void* p) {
  AllocationRef allocation = TheDevice().arena.Find(reinterpret_cast<uint64_t>(p));
  return allocation != nullptr && allocation->kind == MemoryKind::kHost ? allocation : nullptr;
}

}  // namespace

CUresult RegisteredMemory::Add(uint64_t base, uint64_t bytes, uint32_t flags) {
  const std::unique_lock lock(mutex_);
  if (rgpu::base::AnyRangeIn(ranges_, base, bytes, BytesOf)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  ranges_[base] = {base, bytes, flags, next_id_++};
  return CUDA_SUCCESS;
}

CUresult RegisteredMemory::Remove(uint64_t base) {
  const std::unique_lock lock(mutex_);
  if (ranges_.erase(base) == 1) return CUDA_SUCCESS;
  // Inside a range that was registered, but not where it begins.
  return rgpu::base::RangeAt(ranges_, base, BytesOf) != ranges_.end()
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

bool RegisteredMemory::Find(uint64_t address, Range* range) const {
  const std::shared_lock lock(mutex_);
  const auto it = rgpu::base::RangeAt(ranges_, address, BytesOf);
  if (it == ranges_.end()) return false;
  *range = it->second;
  return true;
}

RegisteredMemory& Registered() {
  // Never destroyed, because streams may outlive main.
  static auto* registered = new RegisteredMemory;
  return *registered;
}

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (bytesize == 0) {  // as NVIDIA's driver: nothing to free
    *pp = nullptr;
    return CUDA_SUCCESS;
  }
  Device& device = TheDevice();
  device.limbo.Reap();
  const AllocationRef allocation =
      device.arena.Allocate(bytesize, MemoryKind::kHost, context->handle);
  if (allocation == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  // The device can reach every address of the band.
  allocation->host_flags = Flags | CU_MEMHOSTALLOC_DEVICEMAP;
  *pp = reinterpret_cast<void*>(allocation->base);
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return emu::cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void* p) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const AllocationRef allocation = HostAllocation(p);
  if (allocation == nullptr || allocation->base != reinterpret_cast<uint64_t>(p))
    return CUDA_ERROR_INVALID_VALUE;
  return FreeAllocation(*context, allocation);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  // Registered memory lies outside the band, where kernels cannot reach it.
  if (HostAllocation(p) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<uint64_t>(p);
  return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  const AllocationRef allocation = HostAllocation(p);
  if (allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = allocation->host_flags;
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  if ((Flags & ~kRegisterFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if ((Flags & (CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY)) != 0)
    return CUDA_ERROR_NOT_SUPPORTED;
  const auto base = reinterpret_cast<uint64_t>(p);
  if (base + bytesize < base) return CUDA_ERROR_INVALID_VALUE;
  if (TheDevice().arena.Contains(base)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  return Registered().Add(base, bytesize, Flags);
}

CUresult cuMemHostUnregister(void* p) {
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  if (HostAllocation(p) != nullptr) return CUDA_ERROR_INVALID_VALUE;  // never registered, but ours
  // Pending copies still use the memory; after this call the program may free it.
  WaitAll(context->Pending());
  return Registered().Remove(reinterpret_cast<uint64_t>(p));
}

}  // namespace rgpu::emu
