// Virtual memory management: addresses that the program reserves, memory that it creates, and
// mappings of the memory to the addresses. Memory may be mapped at several addresses.
#pragma once

#include <atomic>
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

// A file takes a descriptor, of which a process has not many.
class FilePlace {
 public:
  FilePlace() = default;
  ~FilePlace() {
    if (taken_) --all_;
  }
  FilePlace(const FilePlace&) = delete;
  FilePlace& operator=(const FilePlace&) = delete;

  // False: there are too many files.
  bool Take() {
    taken_ = ++all_ <= kMost;
    if (!taken_) --all_;
    return taken_;
  }

 private:
  static constexpr int kMost = 256;
  static inline std::atomic<int> all_{0};
  bool taken_ = false;
};

// Memory of cuMemCreate. It lives until its last reference and its last mapping are gone.
struct MappableMemory {
  MappableMemory(Arena* owner, uint64_t size) : arena(owner), bytes(size) {}
  ~MappableMemory() {
    if (place != 0) arena->GiveMemory(place, bytes);
    if (counts) arena->Uncharge(bytes);
  }
  MappableMemory(const MappableMemory&) = delete;
  MappableMemory& operator=(const MappableMemory&) = delete;

  Arena* const arena;
  const uint64_t bytes;
  uint64_t place = 0;  // in the heap; 0: it has a file of its own, for other processes
  FilePlace file_place;
  rgpu::base::UniqueFd file;
  bool counts = false;  // a file counts as device memory of the process that created it
  uint64_t handle = 0;
  unsigned references = 1;
};

class VirtualMemory {
 public:
  explicit VirtualMemory(Arena* arena) : arena_(arena) {}

  CUresult Reserve(uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t* base);
  CUresult Free(uint64_t base, uint64_t bytes);

  // Memory that is shareable can be exported.
  CUresult Create(uint64_t bytes, bool shareable, uint64_t* handle);
  // Returns a new descriptor of the memory's file.
  CUresult Export(uint64_t handle, int* file);
  // Memory of an exported file.
  CUresult Import(int file, uint64_t* handle);
  CUresult Release(uint64_t handle);
  // Adds a reference to the memory that is mapped at `address`.
  CUresult Retain(uint64_t address, uint64_t* handle);
  bool Knows(uint64_t handle, bool* shareable);

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

  void Add(std::shared_ptr<MappableMemory> memory, uint64_t* handle);
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
