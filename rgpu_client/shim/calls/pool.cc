// Memory pools.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {
namespace {

Pool* FindPool(CUmemoryPool handle) {
  return SessionOf(HandleValue(handle))->handles().Find<Pool>(HandleValue(handle));
}

// A pool belongs to a device, not to a context. But the worker needs a context of the device: the
// current one, or another if that is of another session. A thread without a context has none here.
Issuer PoolIssuer(const Here& here) {
  const bool current = !here.thread->stack.empty() && here.thread->stack.back() != nullptr;
  return current ? here.issuer() : Issuer{here.thread, 0};
}

// The size of an attribute's value. 0: the attribute is unknown.
size_t ValueBytes(CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      return sizeof(int);
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return sizeof(cuuint64_t);
    default:
      return 0;
  }
}

bool IsPolicy(CUmemPool_attribute attribute) {
  return attribute <= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
}

void Store(void* to, size_t bytes, uint64_t value) {
  if (bytes == sizeof(int)) {
    *static_cast<int*>(to) = static_cast<int>(value);
  } else {
    *static_cast<cuuint64_t*>(to) = value;
  }
}

CUresult DevicePool(const CUmemLocation* location, CUmemAllocationType type, CUdevice* device) {
  if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || type != CU_MEM_ALLOCATION_TYPE_PINNED) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *device = location->id;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  CUdevice dev = 0;
  const CUresult located = DevicePool(&poolProps->location, poolProps->allocType, &dev);
  if (located != CUDA_SUCCESS) return located;
  const Here here = CodeOnDevice(dev);
  if (poolProps->handleTypes != CU_MEM_HANDLE_TYPE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  const Device* device = here.session->devices().Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  auto made = std::make_unique<Pool>();
  made->device = dev;
  Pool* added = made.get();
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  added->wire = id;
  rgpuPoolCreate_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuPoolCreate>(
      PoolIssuer(here), {id, device->server_ordinal, poolProps->maxSize}, &reply);
  if (status != CUDA_SUCCESS) {
    here.session->handles().Remove(id);
    return status;
  }
  *pool = MakeHandle<CUmemoryPool>(id);
  return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  const Here here = CodeHere(HandleValue(pool));
  Pool* found = FindPool(pool);
  if (found == nullptr || found->is_default) return CUDA_ERROR_INVALID_VALUE;
  Device& device = *here.session->devices().Find(found->device);
  uint64_t current = found->id;
  device.current_pool.compare_exchange_strong(current, device.default_pool->id);
  const uint64_t wire = found->wire;
  here.session->handles().Remove(found->id);
  return here.channel().Post<op_rgpuPoolDestroy>(PoolIssuer(here), {wire});
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  const Pool* found = FindPool(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const Here here = CodeHere(HandleValue(pool));
  return here.channel().Post<op_rgpuPoolTrim>(PoolIssuer(here), {found->wire, minBytesToKeep});
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Pool* found = FindPool(pool);
  const size_t bytes = ValueBytes(attr);
  if (found == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t number = bytes == sizeof(int) ? static_cast<uint64_t>(*static_cast<int*>(value))
                                               : *static_cast<cuuint64_t*>(value);
  const bool high =
      attr == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH || attr == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
  // High-water marks can only be reset to 0. Current values can only be read.
  if (!IsPolicy(attr) && !(high && number == 0)) return CUDA_ERROR_INVALID_VALUE;
  if (IsPolicy(attr)) {
    const std::lock_guard lock(found->mutex);
    found->attributes[attr] = number;
  }
  const Here here = CodeHere(HandleValue(pool));
  return here.channel().Post<op_rgpuPoolSetAttribute>(
      PoolIssuer(here), {found->wire, static_cast<int32_t>(attr), number});
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Pool* found = FindPool(pool);
  const size_t bytes = ValueBytes(attr);
  if (found == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (IsPolicy(attr)) {
    const std::lock_guard lock(found->mutex);
    const auto known = found->attributes.find(attr);
    if (known != found->attributes.end()) {
      Store(value, bytes, known->second);
      return CUDA_SUCCESS;
    }
  }
  rgpuPoolGetAttribute_Reply reply;
  const Here here = CodeHere(HandleValue(pool));
  const CUresult status = here.channel().Call<op_rgpuPoolGetAttribute>(
      PoolIssuer(here), {found->wire, static_cast<int32_t>(attr)}, &reply);
  if (status != CUDA_SUCCESS) return status;
  Store(value, bytes, reply.value);
  if (!IsPolicy(attr)) return CUDA_SUCCESS;
  const std::lock_guard lock(found->mutex);
  found->attributes.emplace(attr, reply.value);
  return CUDA_SUCCESS;
}

// Accepts only what holds anyway: a pool is accessible from its own device and from no other.
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  const Pool* found = FindPool(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const bool own =
        map[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && map[i].location.id == found->device;
    if (own && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) return CUDA_ERROR_INVALID_VALUE;
    if (!own && map[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_INVALID_DEVICE;
  }
  return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  const Pool* found = FindPool(memPool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const bool own = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == found->device;
  *flags = own ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  const Device* device = CurrentSession()->devices().Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (pool_out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (device->Attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *pool_out = MakeHandle<CUmemoryPool>(device->default_pool->id);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  const CUresult status = shim::cuDeviceGetDefaultMemPool(pool, dev);
  if (status != CUDA_SUCCESS) return status;
  *pool = MakeHandle<CUmemoryPool>(CurrentSession()->devices().Find(dev)->current_pool.load());
  return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Device* device = CurrentSession()->devices().Find(dev);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  const Pool* found = FindPool(pool);
  if (found == nullptr || found->device != dev) return CUDA_ERROR_INVALID_VALUE;
  device->current_pool = found->id;
  return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult status = DevicePool(location, type, &device);
  return status == CUDA_SUCCESS ? shim::cuDeviceGetDefaultMemPool(pool_out, device) : status;
}

CUresult cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  CUdevice device = 0;
  const CUresult status = DevicePool(location, type, &device);
  return status == CUDA_SUCCESS ? shim::cuDeviceGetMemPool(pool, device) : status;
}

CUresult cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  CUdevice device = 0;
  const CUresult status = DevicePool(location, type, &device);
  return status == CUDA_SUCCESS ? shim::cuDeviceSetMemPool(device, pool) : status;
}

}  // namespace rgpu::shim
