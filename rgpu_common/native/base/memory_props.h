// The properties of memory for cuMemCreate. The shim and the emulated device accept the same ones:
// pinned memory of a device, of which other processes get a file descriptor or nothing.
#pragma once

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

// CUDA_SUCCESS if the location is a device.
inline CUresult CheckMemoryLocation(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// True for memory that processes may share by a file descriptor.
inline bool IsShareable(const CUmemAllocationProp& prop) {
  return prop.requestedHandleTypes == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

// CUDA_SUCCESS, or the error for a property that is unknown or that rgpu does not have. The caller
// checks the number of the device.
inline CUresult CheckMemoryProps(const CUmemAllocationProp& prop) {
  switch (prop.type) {
    case CU_MEM_ALLOCATION_TYPE_PINNED:
      break;
    case CU_MEM_ALLOCATION_TYPE_MANAGED:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  const CUresult bad = CheckMemoryLocation(prop.location);
  if (bad != CUDA_SUCCESS) return bad;
  if (prop.allocFlags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool strange = prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && !IsShareable(prop);
  const bool special = prop.allocFlags.gpuDirectRDMACapable != 0 || prop.allocFlags.usage != 0;
  return strange || special ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

// What cuMemGetAllocationPropertiesFromHandle returns. Compression is only a wish: no memory has
// it.
inline CUmemAllocationProp MemoryProps(int device, bool shareable = false) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  if (shareable) prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return prop;
}

inline bool IsMemoryAccess(int flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

inline bool IsPowerOfTwo(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace rgpu::base
