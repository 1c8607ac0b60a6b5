// What a pointer is: from the address map.
#include <string.h>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"

namespace rgpu::shim {
namespace {

template <typename T>
CUresult Store(void* data, T value) {
  memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

CUresult ContextOf(const Range& range, void* data) {
  return Store(data, MakeHandle<CUcontext>(range.context));
}

CUresult AttributeOf(const Range& range, CUpointer_attribute attribute, uint64_t ptr, void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return ContextOf(range, data);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Store<unsigned>(data, range.is_device() ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      if (!range.is_device()) return CUDA_ERROR_INVALID_VALUE;
      return Store<CUdeviceptr>(data, ptr);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.is_host()) return CUDA_ERROR_INVALID_VALUE;
      return Store<void*>(data, reinterpret_cast<void*>(ptr));
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Store<unsigned>(data, range.sync_memops ? 1U : 0U);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Store<unsigned long long>(data, range.buffer_id);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      return Store<unsigned>(data, 0U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Store<int>(data, range.device);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return Store<CUdeviceptr>(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return Store<size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Store<unsigned>(data, 1U);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store<unsigned long long>(data, 0ULL);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Store<unsigned>(data, CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store(data, MakeHandle<CUmemoryPool>(range.pool));
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store<size_t>(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store<void*>(data, reinterpret_cast<void*>(range.base));
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Store<unsigned long long>(data, range.buffer_id);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;  // P2P tokens: memory of another machine has none
  }
}

// Bytes of an attribute's value, for the zeros of memory that CUDA does not know.
size_t ValueBytes(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Here here;
  if (data == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto range = here.session->addresses().Find(ptr);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return AttributeOf(*range, attribute, ptr, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  Here here;
  if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto range = here.session->addresses().Find(ptr);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool known = range && AttributeOf(*range, attributes[i], ptr, data[i]) == CUDA_SUCCESS;
    if (known) continue;
    memset(data[i], 0, ValueBytes(attributes[i]));
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) Store<int>(data[i], -2);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Here here;
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  unsigned on = 0;
  memcpy(&on, value, sizeof(on));
  const auto range = here.session->addresses().Find(ptr);
  if (!range || !range->is_device()) return CUDA_ERROR_INVALID_VALUE;
  here.session->addresses().SetSyncMemops(ptr, on != 0);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
