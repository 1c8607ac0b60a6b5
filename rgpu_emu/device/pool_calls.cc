// Calls cuMemPool*, cuMemAllocAsync, cuMemFreeAsync and those about the pools of a device.
#include <utility>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/graph_capture.h"
#include "rgpu_emu/device/graph_memory.h"
#include "rgpu_emu/device/virtual_memory.h"

namespace rgpu::emu {
namespace {

bool IsOurs(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0;
}

// Accepts only pinned memory of the device itself; there are no other pools.
CUresult CheckLocation(const CUmemLocation* location, CUmemAllocationType type) {
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_NOT_SUPPORTED;
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id != 0)
    return CUDA_ERROR_INVALID_DEVICE;
  return IsOurs(*location) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

std::shared_ptr<Pool> FindPool(CUmemoryPool pool) { return TheDevice().pools.Find(Raw(pool)); }

CUresult AllocateFrom(const std::shared_ptr<Pool>& pool, size_t bytes, CUstream operand,
                      CUdeviceptr* dptr) {
  std::shared_ptr<Stream> stream;
  const CUresult found = FindStream(operand, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (bytes == 0) {  // unlike cuMemAlloc, whose text forbids it
    *dptr = 0;
    return CUDA_SUCCESS;
  }
  CUresult captured = CUDA_SUCCESS;
  if (CaptureAllocation(*stream, bytes, dptr, &captured)) return captured;
  uint64_t address = 0;
  CUresult result = pool->Allocate(bytes, stream, &address);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    // Before refusing: free what other pools only cache, and what was freed but is not given back
    // yet.
    TrimPools(0);
    result = pool->Allocate(bytes, stream, &address);
  }
  while (result == CUDA_ERROR_OUT_OF_MEMORY && TheDevice().limbo.WaitOldest()) {
    result = pool->Allocate(bytes, stream, &address);
  }
  if (result == CUDA_SUCCESS) *dptr = address;
  return result;
}

}  // namespace

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult bad = CheckLocation(&poolProps->location, poolProps->allocType);
  if (bad != CUDA_SUCCESS) return bad;
  const uint64_t handle = NewHandle(HandleKind::kPool);
  // A pool grows in granules, so a limit below one still allows one.
  const uint64_t granules =
      poolProps->maxSize / kMapGranule + (poolProps->maxSize % kMapGranule != 0);
  TheDevice().pools.Add(handle, std::make_shared<Pool>(handle, granules * kMapGranule));
  *pool = As<CUmemoryPool>(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  Device& device = TheDevice();
  if (Raw(pool) == device.default_pool->handle) return CUDA_ERROR_INVALID_VALUE;
  const auto object = device.pools.Remove(Raw(pool));
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  {
    const std::lock_guard lock(device.current_pool_mutex);
    if (device.current_pool == object) device.current_pool = device.default_pool;
    // Allocations refer to their pool, so it lives until the last one is freed.
  }
  object->Retire();
  return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  const auto object = FindPool(pool);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  object->TrimTo(minBytesToKeep);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const auto object = FindPool(pool);
  return object == nullptr ? CUDA_ERROR_INVALID_VALUE : object->Set(attr, value);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  const auto object = FindPool(pool);
  return object == nullptr ? CUDA_ERROR_INVALID_VALUE : object->Get(attr, value);
}

// The owning device always has access, and there is no other device.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  if (FindPool(pool) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (map[i].location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
    if (map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  if (FindPool(memPool) == nullptr || !IsOurs(*location)) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (dev != 0) return CUDA_ERROR_INVALID_DEVICE;
  *pool_out = As<CUmemoryPool>(TheDevice().default_pool->handle);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (dev != 0) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(TheDevice().current_pool_mutex);
  *pool = As<CUmemoryPool>(TheDevice().current_pool->handle);
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  if (dev != 0) return CUDA_ERROR_INVALID_DEVICE;
  auto object = FindPool(pool);
  if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(TheDevice().current_pool_mutex);
  TheDevice().current_pool = std::move(object);
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  const CUresult bad = CheckLocation(location, type);
  return bad != CUDA_SUCCESS ? bad : emu::cuDeviceGetDefaultMemPool(pool_out, 0);
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  const CUresult bad = CheckLocation(location, type);
  return bad != CUDA_SUCCESS ? bad : emu::cuDeviceGetMemPool(pool, 0);
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  const CUresult bad = CheckLocation(location, type);
  return bad != CUDA_SUCCESS ? bad : emu::cuDeviceSetMemPool(0, pool);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  const auto object = FindPool(pool);
  return object == nullptr ? CUDA_ERROR_INVALID_VALUE
                           : AllocateFrom(object, bytesize, hStream, dptr);
}

CUresult cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  std::shared_ptr<Pool> pool;
  {
    const std::lock_guard lock(TheDevice().current_pool_mutex);
    pool = TheDevice().current_pool;
  }
  return AllocateFrom(pool, bytesize, hStream, dptr);
}

CUresult cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  std::shared_ptr<Stream> stream;
  const CUresult found = FindStream(hStream, &stream);
  if (found != CUDA_SUCCESS) return found;
  if (dptr == 0) return CUDA_SUCCESS;
  CUresult freed = CUDA_SUCCESS;
  if (CaptureFree(*stream, dptr, &freed)) return freed;
  if (graph::FreeGraphMemory(Graphs(), dptr, &freed)) return freed;
  Device& device = TheDevice();
  const AllocationRef allocation = device.arena.Find(dptr);
  if (allocation == nullptr || allocation->base != dptr) return CUDA_ERROR_INVALID_VALUE;
  if (allocation->kind != MemoryKind::kPool) return CUDA_ERROR_INVALID_VALUE;
  if (!device.arena.Hide(allocation)) return CUDA_ERROR_INVALID_VALUE;
  const auto pool = allocation->pool;
  Command marker;
  marker.run = [] { return CUDA_SUCCESS; };
  marker.always = true;
  Fence place;
  const CUresult pushed = stream->Push(std::move(marker), &place);
  pool->Free(allocation, stream, {place});
  return pushed;
}

}  // namespace rgpu::emu
