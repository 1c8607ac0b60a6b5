// Device memory: one band of addresses, reserved without access, in which allocations become
// readable and writable.
//
//   band base                         windows                    band end
//   | guard | allocations with gaps ...  | shared/local windows    | guard page |
//
// Every allocation has its own pages, ends at a page border (so the first byte past its last
// 512-byte granule faults) and is followed by a gap, until there are so many that the kernel's
// limit of mappings per process nears.  Freed addresses come back only when the search has gone
// round the whole band.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "rgpu_emu/device/settings.h"

namespace rgpu::emu {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kGranuleBytes = 512;

class Pool;

enum class MemoryKind { kDevice, kPool, kModule, kHost };

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;     // as asked for
  uint64_t map_base = 0;  // pages
  uint64_t map_bytes = 0;
  uint64_t gap_bytes = 0;  // inaccessible pages behind it
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t context = 0;  // handle of the owner
  std::shared_ptr<Pool>
      pool;                 // for kPool: keeps a destroyed pool until its last allocation is freed
  uint64_t id = 0;          // CU_POINTER_ATTRIBUTE_BUFFER_ID
  uint32_t host_flags = 0;  // cuMemHostAlloc, for kHost
  std::atomic<bool> sync_memops{false};

  bool Holds(uint64_t address, uint64_t count) const {
    return address >= base && count <= bytes && address - base <= bytes - count;
  }
};

using AllocationRef = std::shared_ptr<Allocation>;

class Arena {
 public:
  // Reserves the band.  False: `*why` is a sentence.
  bool Open(const Settings& settings, std::string* why);

  // New, zeroed memory; null: not enough.  kHost does not count as device memory.
  AllocationRef Allocate(uint64_t bytes, MemoryKind kind, uint64_t context);
  // Takes the range out of the table: nothing finds it any more.  Its pages stay until Release.
  bool Hide(const AllocationRef& allocation);
  // Puts a hidden range back (memory that a pool hands out again).
  void Show(const AllocationRef& allocation);
  // Gives the pages back.  The range must be hidden.
  void Release(const AllocationRef& allocation);

  // Counts memory that has no addresses (the threads' local memory).  False: not enough.
  bool Charge(uint64_t bytes);
  void Uncharge(uint64_t bytes) { used_ -= bytes; }

  // The allocation that holds `address`, or null.
  AllocationRef Find(uint64_t address) const;
  std::vector<AllocationRef> Owned(uint64_t context) const;

  bool Contains(uint64_t address) const { return address - base_ < bytes_; }
  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t windows_base() const { return windows_base_; }
  uint64_t windows_bytes() const { return bytes_ - (windows_base_ - base_); }
  uint64_t capacity() const { return capacity_; }
  // The heap as a file, [base, windows_base); the arena's own.  It holds allocations and nothing
  // else: windows, frames and code are private memory.
  int heap_fd() const { return memfd_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  bool MapHeap(std::string* why);
  uint64_t TakeRange(uint64_t bytes);
  void GiveRange(uint64_t base, uint64_t bytes);
  void DropPages(uint64_t base, uint64_t bytes) const;

  uint64_t base_ = 0;
  uint64_t bytes_ = 0;
  uint64_t windows_base_ = 0;
  uint64_t capacity_ = 0;
  int memfd_ = -1;
  std::atomic<uint64_t> used_{0};
  std::atomic<uint64_t> next_id_{1};
  std::atomic<uint64_t> live_{0};

  std::mutex range_mutex_;
  std::map<uint64_t, uint64_t> free_;  // base -> bytes
  uint64_t cursor_ = 0;

  mutable std::shared_mutex table_mutex_;
  std::map<uint64_t, AllocationRef> table_;  // by base
};

}  // namespace rgpu::emu
