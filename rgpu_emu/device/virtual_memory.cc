#include "rgpu_emu/device/virtual_memory.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "rgpu_common/native/base/memory_props.h"
#include "rgpu_common/native/base/ranges.h"
#include "rgpu_emu/device/device.h"
#include "rgpu_emu/device/shared_file.h"

namespace rgpu::emu {
namespace {

// Each mapping costs up to three of the process's mappings; by default Linux gives it 65,530, and
// the arena's gaps take half of them.
constexpr size_t kMostMappings = 6144;

bool Granular(uint64_t value) { return value % kMapGranule == 0; }

// True if `bytes` is a number of whole pages that ends inside the address space.
bool IsRange(uint64_t base, uint64_t bytes) { return bytes != 0 && base + bytes > base; }

}  // namespace

bool VirtualMemory::Reserved(uint64_t base, uint64_t bytes) const {
  const auto bytes_of = [](uint64_t reserved) { return reserved; };
  return rgpu::base::RangeHolding(reserved_, base, bytes, bytes_of) != reserved_.end();
}

bool VirtualMemory::Meets(uint64_t base, uint64_t bytes) const {
  return rgpu::base::AnyRangeIn(mappings_, base, bytes, BytesOf);
}

VirtualMemory::Mappings::iterator VirtualMemory::Tiling(uint64_t base, uint64_t bytes) {
  const auto all = [](const Mapping&) { return true; };
  return rgpu::base::RangesTiling(mappings_, base, bytes, BytesOf, all).first;
}

VirtualMemory::Mapping* VirtualMemory::Holding(uint64_t address) {
  const auto it = rgpu::base::RangeAt(mappings_, address, BytesOf);
  return it == mappings_.end() ? nullptr : &it->second;
}

CUresult VirtualMemory::Reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* base) {
  if (bytes == 0 || bytes % kPageBytes != 0 || hint % kPageBytes != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (alignment != 0 && !base::IsPowerOfTwo(alignment)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const uint64_t at = arena_->TakeAddresses(bytes, std::max(alignment, kMapGranule), hint);
  if (at == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  reserved_[at] = bytes;
  *base = at;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Free(uint64_t base, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = reserved_.find(base);
  if (found == reserved_.end() || found->second != bytes || Meets(base, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  reserved_.erase(found);
  arena_->GiveAddresses(base, bytes);
  return CUDA_SUCCESS;
}

void VirtualMemory::Add(std::shared_ptr<MappableMemory> memory, uint64_t* handle) {
  memory->handle = NewHandle(HandleKind::kMemory);
  *handle = memory->handle;
  const std::lock_guard lock(mutex_);
  memories_[*handle] = std::move(memory);
}

CUresult VirtualMemory::Create(uint64_t bytes, bool shareable, uint64_t* handle) {
  if (bytes == 0 || !Granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto memory = std::make_shared<MappableMemory>(arena_, bytes);
  if (shareable) {
    memory->counts = memory->file_place.Take() && arena_->Charge(bytes);
    if (memory->counts) memory->file = MakeSharedFile("rgpu-emu-memory", bytes);
    if (!memory->file.valid()) return CUDA_ERROR_OUT_OF_MEMORY;
  } else {
    memory->place = arena_->TakeMemory(bytes);
    if (memory->place == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  Add(std::move(memory), handle);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Export(uint64_t handle, int* file) {
  const std::lock_guard lock(mutex_);
  const auto found = memories_.find(handle);
  if (found == memories_.end() || !found->second->file.valid()) return CUDA_ERROR_INVALID_VALUE;
  const int made = fcntl(found->second->file.get(), F_DUPFD_CLOEXEC, 0);
  if (made < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  *file = made;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Import(int file, uint64_t* handle) {
  uint64_t bytes = 0;
  rgpu::base::UniqueFd own = CopySharedFile(file, &bytes);
  if (!own.valid() || bytes == 0 || !Granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  auto memory = std::make_shared<MappableMemory>(arena_, bytes);
  if (!memory->file_place.Take()) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->file = std::move(own);
  Add(std::move(memory), handle);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Release(uint64_t handle) {
  std::shared_ptr<MappableMemory> last;  // its pages are freed without the lock
  const std::lock_guard lock(mutex_);
  const auto found = memories_.find(handle);
  if (found == memories_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second->references != 0) return CUDA_SUCCESS;
  last = std::move(found->second);
  memories_.erase(found);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Retain(uint64_t address, uint64_t* handle) {
  const std::lock_guard lock(mutex_);
  const Mapping* mapping = Holding(address);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ++mapping->memory->references;
  *handle = mapping->memory->handle;
  memories_[*handle] = mapping->memory;
  return CUDA_SUCCESS;
}

bool VirtualMemory::Knows(uint64_t handle, bool* shareable) {
  const std::lock_guard lock(mutex_);
  const auto found = memories_.find(handle);
  if (found == memories_.end()) return false;
  *shareable = found->second->file.valid();
  return true;
}

CUresult VirtualMemory::Map(uint64_t base, uint64_t bytes, uint64_t handle) {
  if (!IsRange(base, bytes) || !Granular(base) || !Granular(bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const auto found = memories_.find(handle);
  if (found == memories_.end() || bytes > found->second->bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!Reserved(base, bytes) || Meets(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const MappableMemory& memory = *found->second;
  if (mappings_.size() >= kMostMappings) return CUDA_ERROR_OUT_OF_MEMORY;
  const bool mapped = memory.place != 0 ? arena_->Map(base, memory.place, bytes)
                                        : Arena::MapFile(base, memory.file.get(), bytes);
  if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
  auto addresses = std::make_shared<Allocation>();
  addresses->base = base;
  addresses->bytes = bytes;
  addresses->kind = MemoryKind::kMapped;
  addresses->id = arena_->NewId();
  addresses->memory = handle;
  mappings_[base] = {addresses, found->second};
  arena_->Show(addresses);
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Unmap(uint64_t base, uint64_t bytes) {
  if (!IsRange(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  auto it = Tiling(base, bytes);
  if (it == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!arena_->Unmap(base, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  while (it != mappings_.end() && it->first - base < bytes) {
    arena_->Hide(it->second.addresses);
    it = mappings_.erase(it);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::SetAccess(uint64_t base, uint64_t bytes, CUmemAccess_flags access) {
  if (!IsRange(base, bytes)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  auto it = Tiling(base, bytes);
  if (it == mappings_.end()) return CUDA_ERROR_INVALID_VALUE;
  const bool read = access != CU_MEM_ACCESS_FLAGS_PROT_NONE;
  const bool write = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  if (!arena_->Protect(base, bytes, read, write)) return CUDA_ERROR_OUT_OF_MEMORY;
  for (; it != mappings_.end() && it->first - base < bytes; ++it) {
    it->second.addresses->access.store(access);
  }
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::GetAccess(uint64_t address, uint64_t* access) {
  const std::lock_guard lock(mutex_);
  const Mapping* mapping = Holding(address);
  if (mapping == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *access = static_cast<uint64_t>(mapping->addresses->access.load());
  return CUDA_SUCCESS;
}

bool VirtualMemory::MayAccess(uint64_t address, uint64_t bytes) const {
  for (;;) {
    const AllocationRef part = arena_->Find(address);
    if (part == nullptr || part->kind != MemoryKind::kMapped) return false;
    if (part->access.load() == CU_MEM_ACCESS_FLAGS_PROT_NONE) return false;
    const uint64_t rest = part->bytes - (address - part->base);
    if (bytes <= rest) return true;
    address += rest;
    bytes -= rest;
  }
}

}  // namespace rgpu::emu
