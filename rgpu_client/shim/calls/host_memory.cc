// Host memory that the program pins or registers. The server learns only of memory that the program
// maps to the device.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/host_bytes.h"
#include "rgpu_client/shim/calls/visible_memory.h"
#include "rgpu_client/shim/graphs/graphs.h"
#include "rgpu_common/native/base/probe.h"

namespace rgpu::shim {
namespace {

constexpr unsigned kRegisterFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                                    CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
// Memory of a device, and memory that the device may not write (attribute 113 is 0).
constexpr unsigned kRefusedFlags = CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;

Range HostRange(const Here& here, const void* address, uint64_t bytes, RangeKind kind,
                unsigned flags) {
  Range range;
  range.base = reinterpret_cast<uint64_t>(address);
  range.bytes = bytes;
  range.kind = kind;
  range.context = here.context_id();
  range.device = here.context->device;
  range.flags = flags;
  return range;
}

}  // namespace

CUresult cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  Here here;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  if (bytesize == 0) {  // as NVIDIA's driver: nothing to free
    *pp = nullptr;
    return CUDA_SUCCESS;
  }
  const Device& device = *here.session->devices().Find(here.context->device);
  // CUDA documents that devices which cannot map memory ignore the flag.
  if ((Flags & CU_MEMHOSTALLOC_DEVICEMAP) != 0 &&
      device.Attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) != 0) {
    uint64_t address = 0;
    const CUresult status =
        AllocateVisible(here, bytesize, RangeKind::kHostMapped, Flags, &address);
    if (status == CUDA_SUCCESS) *pp = reinterpret_cast<void*>(address);
    return status;
  }
  void* const memory = here.session->pinned().Allocate(bytesize);
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!here.session->addresses().Add(
          HostRange(here, memory, bytesize, RangeKind::kPinned, Flags))) {
    here.session->pinned().Free(memory, bytesize);
    return CUDA_ERROR_UNKNOWN;
  }
  *pp = memory;
  return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void** pp, size_t bytesize) {
  return shim::cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void* p) {
  if (p == nullptr) return CUDA_SUCCESS;
  const Here here = AddressHere(reinterpret_cast<uint64_t>(p));
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  const auto address = reinterpret_cast<uint64_t>(p);
  AddressMap& addresses = here.session->addresses();
  if (const auto mapped = addresses.Take(address, RangeKind::kHostMapped, RangeKind::kHostMapped)) {
    return FreeVisible(here, *mapped);
  }
  const auto range = addresses.Find(address);
  if (!range || range->kind != RangeKind::kPinned || range->base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // A copy that is still outstanding would otherwise touch memory that has been given to another
  // owner.
  WaitForHostBytes(here, address, range->bytes);
  FreeImages(*range);
  if (addresses.Take(address, RangeKind::kPinned, RangeKind::kPinned)) {
    here.session->pinned().Free(p, range->bytes);
  }
  return CUDA_SUCCESS;
}

CUresult cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  Here here;
  if ((Flags & kRefusedFlags) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  if ((Flags & ~kRegisterFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  if (const CUresult bad = CheckUnsafe(); bad != CUDA_SUCCESS) return bad;
  const auto address = reinterpret_cast<uint64_t>(p);
  for (Session* const session : LiveSessions()) {
    if (session->IsDeviceAddress(address)) return CUDA_ERROR_INVALID_VALUE;
    if (session->addresses().Meets(address, bytesize)) {
      return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
  }
  // Kernels may write it.
  if (!base::CanWrite(p, bytesize)) return CUDA_ERROR_INVALID_VALUE;
  return here.session->addresses().Add(HostRange(here, p, bytesize, RangeKind::kRegistered, Flags))
             ? CUDA_SUCCESS
             : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}

CUresult cuMemHostUnregister(void* p) {
  const auto address = reinterpret_cast<uint64_t>(p);
  const Here here = AddressHere(address);
  const auto range = here.session->addresses().Find(address);
  if (!range || !range->is_host_memory()) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  // Page-locked memory that was not registered, or a place inside a range.
  if (range->kind != RangeKind::kRegistered || range->base != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  WaitForHostBytes(here, address, range->bytes);
  FreeImages(*range);
  here.session->addresses().Take(address, RangeKind::kRegistered, RangeKind::kRegistered);
  return CUDA_SUCCESS;
}

// CUDA documents the errors of mapping for this function, not for the registration. So the device
// gets its image of registered memory here.
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int) {
  Here here;
  *pdptr = 0;
  if (const CUresult status = ContextHere(&here); status != CUDA_SUCCESS) return status;
  const auto address = reinterpret_cast<uint64_t>(p);
  Session* const owner = SessionOfAddress(address);
  const auto range = owner->addresses().Find(address);
  if (!range || !range->is_host_memory()) return CUDA_ERROR_INVALID_VALUE;
  if (range->is_device()) {  // mapped memory lies in one device
    if (owner != here.session) return CUDA_ERROR_INVALID_VALUE;
    *pdptr = address;
    return CUDA_SUCCESS;
  }
  Range image;
  const CUresult status = ImageOf(here, *range, &image);
  if (status == CUDA_SUCCESS) *pdptr = image.base + (address - range->base);
  return status;
}

CUresult cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  const auto address = reinterpret_cast<uint64_t>(p);
  Session& owner = *SessionOfAddress(address);
  const auto range = owner.addresses().Find(address);
  const bool allocated =
      range && (range->kind == RangeKind::kPinned || range->kind == RangeKind::kHostMapped);
  if (!allocated) return CUDA_ERROR_INVALID_VALUE;
  // With unified addresses all page-locked memory is mapped, whether the program asked for that or
  // not.
  const Device& device = *owner.devices().Find(range->device);
  const bool maps = device.Attribute(CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY) != 0;
  *pFlags = range->flags | (maps ? CU_MEMHOSTALLOC_DEVICEMAP : 0U);
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
