// Pointer attributes. All answers come from the address map.
#include <string.h>

#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/visible_memory.h"

namespace rgpu::shim {
namespace {

template <typename T>
CUresult Store(void* data, T value) {
  memcpy(data, &value, sizeof(value));
  return CUDA_SUCCESS;
}

// Sets `*value` for the attributes whose value is an unsigned int. False: the value has another
// type.
bool NumberOf(const Range& range, CUpointer_attribute attribute, unsigned* value) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *value = range.is_host_memory() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *value = range.kind == RangeKind::kManaged ? 1U : 0U;
      return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      *value = range.sync_memops ? 1U : 0U;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *value = range.bytes != 0 && range.kind == RangeKind::kDevice ? 1U : 0U;
      return true;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
      *value = 0;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *value = static_cast<unsigned>(range.device);
      return true;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *value = 1;
      return true;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      *value = range.access;  // CUmemAccess_flags has the same numbers
      return true;
    default:
      return false;
  }
}

// As cuMemHostGetDevicePointer: page-locked memory gets its image on the device when the program
// asks for the address, in the memory's own context if the thread has none.
CUresult DevicePointer(const Range& range, uint64_t ptr, void* data) {
  if (range.is_device()) return Store(data, ptr);
  Here here;
  if (ContextHere(&here) != CUDA_SUCCESS) {
    here = AnyHere();
    here.session = SessionOfAddress(range.base);
    here.context = here.session->handles().Find<Context>(range.context);
    if (here.context == nullptr || !here.context->alive) return CUDA_ERROR_INVALID_VALUE;
  }
  Range image;
  const CUresult status = ImageOf(here, range, &image);
  return status == CUDA_SUCCESS ? Store(data, image.base + (ptr - range.base)) : status;
}

CUresult AttributeOf(const Range& range, CUpointer_attribute attribute, uint64_t ptr, void* data) {
  if (unsigned number = 0; NumberOf(range, attribute, &number)) return Store(data, number);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Store<uint64_t>(data, range.context);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return DevicePointer(range, ptr, data);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (range.kind == RangeKind::kHostImage) return Store(data, range.owner + (ptr - range.base));
      return range.is_host() || range.is_visible() ? Store(data, ptr) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Store(data, range.buffer_id);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:  // the same at all addresses of one memory
      return Store(data, range.kind == RangeKind::kMapped ? range.owner : range.buffer_id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Store(data, range.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Store(data, range.bytes);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Store<uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Store(data, range.pool);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;  // they do not exist for memory of another machine
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace

// Both need no current context: a thread can ask for the context of an address to make it current.
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  const Here here = AddressHere(ptr);
  const auto range = here.session->addresses().Find(ptr);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  return AttributeOf(*range, attribute, ptr, data);
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  const Here here = AddressHere(ptr);
  const auto range = here.session->addresses().Find(ptr);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const bool known = range && AttributeOf(*range, attributes[i], ptr, data[i]) == CUDA_SUCCESS;
    if (known) continue;
    unsigned number = 0;
    const bool is_number = NumberOf(Range{}, attributes[i], &number);
    memset(data[i], 0, is_number ? sizeof(unsigned) : sizeof(uint64_t));
    if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) Store<int>(data[i], -2);
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  Here here;
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
