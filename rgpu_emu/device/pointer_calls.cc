// Calls cuPointer*.
#include <cstring>

#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/host_memory.h"
#include "rgpu_emu/device/hostile.h"

namespace rgpu::emu {
namespace {

constexpr int kNoDevice = -2;  // CU_DEVICE_INVALID

// Facts about an address; `known` is false for ordinary host memory.
struct Facts {
  bool known = false;
  bool host = false;
  bool reachable = false;  // from the device
  bool mapped = false;     // by cuMemMap
  bool exportable = false;
  bool managed = false;
  int access = CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE;
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t context = 0;
  uint64_t id = 0;
  uint64_t block = 0;  // the same at all addresses of one memory
  uint64_t pool = 0;
  bool sync_memops = false;
  AllocationRef allocation;
};

Facts FactsOf(uint64_t address) {
  Facts facts;
  if (const AllocationRef allocation = TheDevice().arena.Find(address); allocation != nullptr) {
    facts.known = true;
    facts.host = allocation->kind == MemoryKind::kHost;
    facts.reachable = true;
    facts.base = allocation->base;
    facts.bytes = allocation->bytes;
    facts.context = allocation->context;
    facts.id = allocation->id;
    facts.block = allocation->memory != 0 ? allocation->memory : allocation->id;
    facts.exportable = allocation->kind == MemoryKind::kDevice;
    facts.mapped = allocation->kind == MemoryKind::kMapped;
    facts.managed = allocation->kind == MemoryKind::kManaged;
    if (facts.mapped) facts.access = allocation->access.load();
    facts.pool = allocation->pool == nullptr ? 0 : allocation->pool->handle;
    facts.sync_memops = allocation->sync_memops.load();
    facts.allocation = allocation;
    return facts;
  }
  RegisteredMemory::Range range;
  if (Registered().Find(address, &range)) {
    facts.known = true;
    facts.host = true;
    facts.base = range.base;
    facts.bytes = range.bytes;
    facts.id = range.id;
    facts.block = range.id;
  }
  return facts;
}

template <class T>
CUresult Give(void* data, T value) {
  std::memcpy(data, &value, sizeof(T));
  return CUDA_SUCCESS;
}

CUresult Addresses(void* data, CUpointer_attribute attribute, const Facts& facts,
                   uint64_t address) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return facts.reachable ? Give<uint64_t>(data, address) : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      // The host can reach the whole arena. Hostile timing denies it, as discrete devices do. The
      // access to mapped addresses can be taken away, so nobody else uses them.
      return facts.host || facts.managed || (!Hostile() && !facts.mapped)
                 ? Give<uint64_t>(data, address)
                 : CUDA_ERROR_INVALID_VALUE;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return Give<uint64_t>(data, facts.base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
      return Give<size_t>(data, facts.bytes);
    case CU_POINTER_ATTRIBUTE_P2P_TOKENS:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult Answer(void* data, CUpointer_attribute attribute, const Facts& facts, uint64_t address) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return Give<uint64_t>(data, facts.context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return Give<uint32_t>(data, facts.host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
      return Give<uint32_t>(data, facts.sync_memops ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      return Give<uint64_t>(data, facts.id);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return Give<uint64_t>(data, facts.block);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return Give<int>(data, 0);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return Give<uint32_t>(data, facts.reachable ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return Give<uint32_t>(data, facts.managed ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return Give<uint32_t>(data, facts.exportable ? 1 : 0);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
      return Give<uint32_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      return Give<uint64_t>(data, 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
      return Give<int>(data, facts.access);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return Give<uint64_t>(data, facts.pool);
    default:
      return Addresses(data, attribute, facts, address);
  }
}

size_t SizeOf(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

// Both need no current context: a thread can ask for the context of an address to make it current.
CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  const Facts facts = FactsOf(ptr);
  return facts.known ? Answer(data, attribute, facts, ptr) : CUDA_ERROR_INVALID_VALUE;
}

// Unknown memory is not an error here: every answer is zero, and the device ordinal
// CU_DEVICE_INVALID.
CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  const Facts facts = FactsOf(ptr);
  for (unsigned i = 0; i < numAttributes; ++i) {
    if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    std::memset(data[i], 0, SizeOf(attributes[i]));
    if (!facts.known) {
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) Give<int>(data[i], kNoDevice);
      continue;
    }
    const CUresult answer = Answer(data[i], attributes[i], facts, ptr);
    if (answer == CUDA_ERROR_NOT_SUPPORTED) return answer;
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  const CUresult found = CurrentContext(&context);
  if (found != CUDA_SUCCESS) return found;
  const Facts facts = FactsOf(ptr);
  if (facts.allocation == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned on = 0;
  std::memcpy(&on, value, sizeof(on));
  // Pending copies were issued before the promise, so wait for them.
  if (on != 0) WaitAll(context->Pending());
  facts.allocation->sync_memops.store(on != 0);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::emu
