// Virtual memory management: addresses that the program reserves, memory that it creates, and
// mappings of the memory to the addresses. Memory may be mapped at several addresses.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "gen/cuda_abi.gen.h"
#include "rgpu_emu/device/arena.h"

namespace rgpu::emu {

// Sizes of memory, and addresses and sizes of mappings, are multiples of it, as on NVIDIA's
// devices.
inline constexpr uint64_t kMapGranule = uint64_t{2} << 20;

// Memory of cuMemCreate. It lives until its last reference and its last mapping are gone.
struct MappableMemory {
  MappableMemory(Arena* owner, uint64_t at, uint64_t size) : arena(owner), place(at), bytes(size) {}
  ~MappableMemory() { arena->GiveMemory(place, bytes); }
  MappableMemory(const MappableMemory&) = delete;
  MappableMemory& operator=(const MappableMemory&) = delete;

  Arena* const arena;
  const uint64_t place;
  const uint64_t bytes;
  uint64_t handle = 0;
  unsigned references = 1;
};

class VirtualMemory {
 public:
  explicit VirtualMemory(Arena* arena) : arena_(arena) {}

  CUresult Reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* base);
  CUresult Free(uint64_t base, uint64_t bytes);

  CUresult Create(uint64_t bytes, uint64_t* handle);
  CUresult Release(uint64_t handle);
  // Adds a reference to the memory that is mapped at `address`.
  CUresult Retain(uint64_t address, uint64_t* handle);
  bool Knows(uint64_t handle);

  CUresult Map(uint64_t base, uint64_t bytes, uint64_t handle);
  // [base, base + bytes) must consist of whole mappings.
  CUresult Unmap(uint64_t base, uint64_t bytes);
  CUresult SetAccess(uint64_t base, uint64_t bytes, CUmemAccess_flags access);
  CUresult GetAccess(uint64_t address, uint64_t* access);

  // True if the device may access all of [address, address + bytes), which may span mappings that
  // adjoin each other.
  bool MayAccess(uint64_t address, uint64_t bytes) const;

 private:
  struct Mapping {
    AllocationRef addresses;
    std::shared_ptr<MappableMemory> memory;
  };
  using Mappings = std::map<uint64_t, Mapping>;
  static uint64_t BytesOf(const Mapping& mapping) { return mapping.addresses->bytes; }

  bool Reserved(uint64_t base, uint64_t bytes) const;
  bool Meets(uint64_t base, uint64_t bytes) const;
  // The first mapping of [base, base + bytes), if whole mappings cover that range; else the end.
  Mappings::iterator Tiling(uint64_t base, uint64_t bytes);
  Mapping* Holding(uint64_t address);

  Arena* const arena_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> reserved_;  // base -> bytes
  Mappings mappings_;
  std::unordered_map<uint64_t, std::shared_ptr<MappableMemory>> memories_;  // with references
};

}  // namespace rgpu::emu
