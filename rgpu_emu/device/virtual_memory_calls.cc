// Calls of virtual memory management: cuMemAddress*, cuMemCreate, cuMemMap and others.
#include "rgpu_common/native/base/memory_props.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/entry.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

// These calls need no context, so they look at the device's own error.
CUresult DeviceStatus() { return static_cast<CUresult>(TheDevice().lost.load()); }

// A driver may wait for the device in calls that take memory or addresses away.
void MayWait() {
  if (!Hostile()) return;
  TheDevice().contexts.ForEach([](const auto& context) { WaitAll(context->Pending()); });
}

CUresult CheckProps(const CUmemAllocationProp& prop) {
  const CUresult bad = base::CheckMemoryProps(prop);
  if (bad != CUDA_SUCCESS) return bad;
  return IsDevice(prop.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult CheckLocation(const CUmemLocation& location) {
  if (const CUresult bad = base::CheckMemoryLocation(location); bad != CUDA_SUCCESS) return bad;
  return IsDevice(location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long) {
  if (const CUresult lost = DeviceStatus(); lost != CUDA_SUCCESS) return lost;
  uint64_t base = 0;
  const CUresult result = TheDevice().maps.Reserve(size, alignment, addr, &base);
  if (result == CUDA_SUCCESS) *ptr = base;
  return result;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  MayWait();
  return TheDevice().maps.Free(ptr, size);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long) {
  if (const CUresult bad = CheckProps(*prop); bad != CUDA_SUCCESS) return bad;
  if (const CUresult lost = DeviceStatus(); lost != CUDA_SUCCESS) return lost;
  Device& device = TheDevice();
  device.limbo.Reap();
  uint64_t made = 0;
  const bool shareable = base::IsShareable(*prop);
  CUresult result = device.maps.Create(size, shareable, &made);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && size <= device.arena.capacity()) {
    TrimPools(0);
    do {
      result = device.maps.Create(size, shareable, &made);
    } while (result == CUDA_ERROR_OUT_OF_MEMORY && device.limbo.WaitOldest());
  }
  if (result == CUDA_SUCCESS) *handle = made;
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  MayWait();
  return TheDevice().maps.Release(handle);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  // cuda.h: the offset "currently must be zero".
  if (offset != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult lost = DeviceStatus(); lost != CUDA_SUCCESS) return lost;
  return TheDevice().maps.Map(ptr, size, handle);
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  MayWait();
  return TheDevice().maps.Unmap(ptr, size);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  if (count == 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (!base::IsMemoryAccess(desc[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult bad = CheckLocation(desc[i].location); bad != CUDA_SUCCESS) return bad;
  }
  if (const CUresult lost = DeviceStatus(); lost != CUDA_SUCCESS) return lost;
  return TheDevice().maps.SetAccess(ptr, size, desc[count - 1].flags);
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  if (const CUresult bad = CheckLocation(*location); bad != CUDA_SUCCESS) return bad;
  uint64_t access = 0;
  const CUresult result = TheDevice().maps.GetAccess(ptr, &access);
  if (result == CUDA_SUCCESS) *flags = access;
  return result;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags) {
  if (const CUresult bad = CheckProps(*prop); bad != CUDA_SUCCESS) return bad;
  *granularity = kMapGranule;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  bool shareable = false;
  if (!TheDevice().maps.Knows(handle, &shareable)) return CUDA_ERROR_INVALID_VALUE;
  *prop = base::MemoryProps(0, shareable);
  return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType handleType, unsigned long long) {
  if (shareableHandle == nullptr || handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return TheDevice().maps.Export(handle, static_cast<int*>(shareableHandle));
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                        CUmemAllocationHandleType shHandleType) {
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult lost = DeviceStatus(); lost != CUDA_SUCCESS) return lost;
  uint64_t made = 0;
  const auto file = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
  const CUresult result = TheDevice().maps.Import(file, &made);
  if (result == CUDA_SUCCESS) *handle = made;
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  uint64_t found = 0;
  const CUresult result = TheDevice().maps.Retain(reinterpret_cast<uint64_t>(addr), &found);
  if (result == CUDA_SUCCESS) *handle = found;
  return result;
}

}  // namespace rgpu::emu
