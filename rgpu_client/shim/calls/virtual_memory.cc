// Virtual memory management. The client checks every call in its tables, so that an error comes
// from the call that made it.
#include "gen/shim_calls.gen.h"
#include "rgpu_client/shim/calls/here.h"
#include "rgpu_client/shim/calls/mappable.h"
#include "rgpu_common/native/base/memory_props.h"

namespace rgpu::shim {
namespace {

bool HasDescriptors(const Device& device) {
  return device.Attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED) != 0;
}

bool HasVirtualMemory(const Device& device) {
  return device.Attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) != 0;
}

CUresult DeviceOf(const CUmemLocation& location, const Device** device) {
  if (const CUresult bad = base::CheckMemoryLocation(location); bad != CUDA_SUCCESS) return bad;
  *device = CurrentSession()->devices().Find(location.id);
  if (*device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return HasVirtualMemory(**device) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult DeviceOf(const CUmemAllocationProp& prop, const Device** device) {
  const CUresult bad = base::CheckMemoryProps(prop);
  return bad == CUDA_SUCCESS ? DeviceOf(prop.location, device) : bad;
}

CUresult ReleaseIfUnused(const Here& here, const Memory& memory) {
  if (memory.references != 0 || memory.mappings != 0) return CUDA_SUCCESS;
  const uint64_t id = memory.id;
  here.session->handles().Remove(id);
  const CUresult status = here.channel().Post<op_rgpuMemRelease>(AnyIssuer(here), {id});
  // Another process of the lease may wait for the memory.
  here.channel().Flush();
  return status;
}

CUresult SendCreate(const Here& here, uint64_t id, int ordinal, uint64_t bytes, bool shareable) {
  if (!shareable) {
    rgpuMemCreate_Reply reply;
    return here.channel().Call<op_rgpuMemCreate>(AnyIssuer(here), {id, ordinal, bytes}, &reply);
  }
  rgpuMemCreateShared_Reply reply;
  return here.channel().Call<op_rgpuMemCreateShared>(
      AnyIssuer(here), {id, ordinal, bytes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR}, &reply);
}

// Notes addresses that the server has reserved. False: they lie outside the band or are in use.
bool Note(const Here& here, uint64_t base, uint64_t bytes) {
  Session& session = *here.session;
  const wire::Band& band = session.band();
  ReservedRange range{bytes, false};
  if (base + bytes < base || session.addresses().Meets(base, bytes)) return false;
  if (band.size != 0) {
    if (base < band.base || base - band.base > band.size) return false;
    if (bytes > band.size - (base - band.base)) return false;
  } else {
    range.claimed = Claim({base, bytes});
  }
  return session.reserved().Add(base, range);
}

// A hint outside the band could not be honoured.
uint64_t Hint(const Here& here, CUdeviceptr addr) {
  const wire::Band& band = here.session->band();
  return band.size == 0 || addr - band.base < band.size ? addr : 0;
}

}  // namespace

CUresult cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long) {
  constexpr uint64_t kPage = 4096;
  const Here here = AnyHere();
  if (size % kPage != 0 || addr % kPage != 0 ||
      (alignment != 0 && !base::IsPowerOfTwo(alignment))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!HasVirtualMemory(*here.session->devices().Find(0))) return CUDA_ERROR_NOT_SUPPORTED;
  const auto lock = LockMemory(here);
  rgpuAddressReserve_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuAddressReserve>(
      AnyIssuer(here), {size, alignment, Hint(here, addr)}, &reply);
  if (status != CUDA_SUCCESS) return status;
  if (!Note(here, reply.dptr, size)) {
    here.channel().SetSticky(CUDA_ERROR_EXTERNAL_DEVICE,
                             "the server reserved addresses outside its band or in use");
    return CUDA_ERROR_EXTERNAL_DEVICE;
  }
  *ptr = reply.dptr;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  const Here here = AddressHere(ptr);
  const auto lock = LockMemory(here);
  if (here.session->addresses().Meets(ptr, size)) return CUDA_ERROR_INVALID_VALUE;
  const auto range = here.session->reserved().Take(ptr, size);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  if (range->claimed) GiveBack({ptr, size});
  return here.channel().Post<op_rgpuAddressFree>(AnyIssuer(here), {ptr, size});
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long) {
  const Device* device = nullptr;
  if (const CUresult bad = DeviceOf(*prop, &device); bad != CUDA_SUCCESS) return bad;
  const bool shareable = base::IsShareable(*prop);
  if (shareable && !HasDescriptors(*device)) return CUDA_ERROR_NOT_SUPPORTED;
  const Here here = DeviceHere(device->ordinal);
  auto made = std::make_unique<Memory>();
  made->device = device->ordinal;
  made->bytes = size;
  made->shareable = shareable;
  const uint64_t id = here.session->handles().Add(std::move(made));
  if (id == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult status = SendCreate(here, id, device->server_ordinal, size, shareable);
  if (status != CUDA_SUCCESS) {
    here.session->handles().Remove(id);
    return status;
  }
  *handle = id;
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  const Here here = AnyHere(handle);
  const auto lock = LockMemory(here);
  Memory* memory = FindMemory(here, handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  --memory->references;
  return ReleaseIfUnused(here, *memory);
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
  const Here here = AddressHere(ptr);
  const auto lock = LockMemory(here);
  Memory* memory = FindMemory(here, handle);
  // cuda.h: the offset "currently must be zero".
  if (memory == nullptr || offset != 0 || size > memory->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!here.session->reserved().Holds(ptr, size) || here.session->addresses().Meets(ptr, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  rgpuMemMap_Reply reply;
  const CUresult status =
      here.channel().Call<op_rgpuMemMap>(AnyIssuer(here), {ptr, size, handle}, &reply);
  if (status != CUDA_SUCCESS) return status;
  Range range;
  range.base = ptr;
  range.bytes = size;
  range.kind = RangeKind::kMapped;
  range.device = memory->device;
  range.owner = handle;
  range.access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  range.exported = !memory->token.empty();
  here.session->addresses().Add(range);
  ++memory->mappings;
  return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  const Here here = AddressHere(ptr);
  const auto lock = LockMemory(here);
  const std::vector<Range> tiles = here.session->addresses().Tiling(ptr, size);
  if (tiles.empty()) return CUDA_ERROR_INVALID_VALUE;
  CUresult status = here.channel().Post<op_rgpuMemUnmap>(AnyIssuer(here), {ptr, size});
  for (const Range& range : tiles) {
    here.session->addresses().Take(range.base, RangeKind::kMapped, RangeKind::kMapped);
    auto* memory = here.session->handles().Find<Memory>(range.owner);
    --memory->mappings;
    const CUresult released = ReleaseIfUnused(here, *memory);
    if (status == CUDA_SUCCESS) status = released;
  }
  return status;
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  const Here here = AddressHere(ptr);
  const auto lock = LockMemory(here);
  for (size_t i = 0; i < count; ++i) {
    if (!base::IsMemoryAccess(desc[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    const Device* device = nullptr;
    if (const CUresult bad = DeviceOf(desc[i].location, &device); bad != CUDA_SUCCESS) return bad;
  }
  const std::vector<Range> tiles = here.session->addresses().Tiling(ptr, size);
  if (tiles.empty()) return CUDA_ERROR_INVALID_VALUE;
  const CUmemAccessDesc* own = nullptr;
  for (const Range& range : tiles) {
    for (size_t i = 0; i < count; ++i) {
      if (desc[i].location.id == range.device) {
        own = &desc[i];
      } else if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) {
        return CUDA_ERROR_INVALID_DEVICE;  // no device reaches the memory of another one
      }
    }
  }
  if (own == nullptr) return CUDA_SUCCESS;
  rgpuMemSetAccess_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuMemSetAccess>(
      AnyIssuer(here), {ptr, size, static_cast<uint32_t>(own->flags)}, &reply);
  if (status != CUDA_SUCCESS) return status;
  for (const Range& range : tiles) here.session->addresses().SetAccess(range.base, own->flags);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  const Device* device = nullptr;
  if (const CUresult bad = DeviceOf(*location, &device); bad != CUDA_SUCCESS) return bad;
  const auto range = SessionOfAddress(ptr)->addresses().Find(ptr);
  if (!range || range->kind != RangeKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  *flags = device->ordinal == range->device ? range->access : 0U;
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  const Device* device = nullptr;
  if (const CUresult bad = DeviceOf(*prop, &device); bad != CUDA_SUCCESS) return bad;
  const Here here = DeviceHere(device->ordinal);
  rgpuMemGranularity_Reply reply;
  const CUresult status = here.channel().Call<op_rgpuMemGranularity>(
      AnyIssuer(here), {device->server_ordinal, static_cast<uint32_t>(option)}, &reply);
  if (status == CUDA_SUCCESS) *granularity = reply.bytes;
  return status;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  const Here here = AnyHere(handle);
  const auto lock = LockMemory(here);
  const Memory* memory = FindMemory(here, handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = base::MemoryProps(memory->device, memory->shareable);
  return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  const Here here = AddressHere(reinterpret_cast<uint64_t>(addr));
  const auto lock = LockMemory(here);
  const auto range = here.session->addresses().Find(reinterpret_cast<uint64_t>(addr));
  if (!range || range->kind != RangeKind::kMapped) return CUDA_ERROR_INVALID_VALUE;
  ++here.session->handles().Find<Memory>(range->owner)->references;
  *handle = range->owner;
  return CUDA_SUCCESS;
}

}  // namespace rgpu::shim
