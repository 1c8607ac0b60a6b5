// Device memory: one band of addresses, reserved without access. Allocations in it become readable
// and writable.
//
//   band base                         windows                    band end
//   | guard | allocations with gaps ...  | shared/local windows    | guard page |
//
// Every allocation has pages of its own and ends at a page border, so that the first byte after its
// last 512-byte granule faults. A gap follows it, unless there are so many gaps that the process
// nears the kernel's limit of mappings. Freed addresses are reused only after the search for free
// ranges has passed through the whole band.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "rgpu_common/native/base/fd.h"
#include "rgpu_emu/device/settings.h"

namespace rgpu::emu {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kGranuleBytes = 512;

inline void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

class Pool;

// kMapped: addresses that cuMemMap has given memory (virtual_memory.h).
// kManaged: memory of cuMemAllocManaged, which host and device use. kGraph: memory of alloc nodes
// and values of conditional nodes (graph_memory.h). kImported: memory of another process, which has
// exported it.
enum class MemoryKind { kDevice, kPool, kModule, kHost, kMapped, kManaged, kGraph, kImported };

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;     // as requested
  uint64_t map_base = 0;  // the pages, including what precedes `base`
  uint64_t map_bytes = 0;
  uint64_t gap_bytes = 0;  // inaccessible pages after the allocation
  bool in_window = false;  // its addresses stay taken when it is freed
  MemoryKind kind = MemoryKind::kDevice;
  uint64_t context = 0;  // handle of the owning context
  std::shared_ptr<Pool>
      pool;                 // for kPool: keeps a destroyed pool until its last allocation is freed
  uint64_t id = 0;          // CU_POINTER_ATTRIBUTE_BUFFER_ID
  uint32_t host_flags = 0;  // for kHost: the flags of cuMemHostAlloc
  std::atomic<bool> sync_memops{false};
  // For kMapped: a CUmemAccess_flags, and the handle of the memory behind the addresses.
  std::atomic<int> access{0};
  uint64_t memory = 0;
  // Of exported memory: its own file, and how much of its pages lies there. With the arena's lock
  // for exports.
  rgpu::base::UniqueFd file;
  uint64_t moved_bytes = 0;

  bool Holds(uint64_t address, uint64_t count) const {
    return address >= base && count <= bytes && address - base <= bytes - count;
  }
};

using AllocationRef = std::shared_ptr<Allocation>;

class Arena {
 public:
  // Reserves the band. On failure `*why` is a sentence.
  bool Open(const Settings& settings, std::string* why);

  // Returns new, zeroed memory; null if there is not enough. kHost does not count as device memory.
  AllocationRef Allocate(uint64_t bytes, MemoryKind kind, uint64_t context);

  // Allocations at addresses that the caller chooses, within a window that TakeAddresses gave it,
  // from memory that it set aside with Charge (arena_window.cc). Null: they do not lie in the heap,
  // meet another allocation, or the process has too many mappings.
  AllocationRef Back(uint64_t base, uint64_t bytes, uint64_t context);

  // Takes the range out of the table, so that Find no longer returns it. Its pages stay until
  // Release.
  bool Hide(const AllocationRef& allocation);
  // Puts a hidden range back (memory that a pool reuses).
  void Show(const AllocationRef& allocation);
  // Frees the pages. The range must be hidden.
  void Release(const AllocationRef& allocation);

  // The parts of virtual memory management (arena_maps.cc).
  // Takes `bytes` addresses (whole pages) without memory, at a multiple of `alignment`: at `hint`
  // if these are free, else anywhere. Returns 0 if none are left.
  uint64_t TakeAddresses(uint64_t bytes, uint64_t alignment, uint64_t hint);
  void GiveAddresses(uint64_t base, uint64_t bytes);
  // Takes zeroed memory without addresses, which counts as device memory. Returns its place in the
  // heap; 0 if there is not enough.
  uint64_t TakeMemory(uint64_t bytes);
  void GiveMemory(uint64_t place, uint64_t bytes);
  // Lets the addresses [base, base + bytes) show the memory at `place`, without access. Returns
  // false if the process has too many mappings.
  bool Map(uint64_t base, uint64_t place, uint64_t bytes) const;
  // The same, for memory in a file of its own, from its beginning.
  static bool MapFile(uint64_t base, int file, uint64_t bytes);
  // The addresses show their own place in the heap again, without access.
  bool Unmap(uint64_t base, uint64_t bytes) const { return Map(base, base, bytes); }
  bool Protect(uint64_t base, uint64_t bytes, bool read, bool write) const;
  uint64_t NewId() { return next_id_.fetch_add(1); }

  // Sharing with other processes (arena_exports.cc).
  // Moves the allocation to a file of its own and returns the file, which the allocation owns.
  // Kernels may run meanwhile. -1: it is not in the table, or the system refuses something.
  int Export(const AllocationRef& allocation);
  // Maps an exported file, of which the allocation is `bytes` at `offset`. It does not count as
  // device memory, because the process that exported it counts it. Null: the system refuses it, or
  // no addresses are left.
  AllocationRef Import(int file, uint64_t file_bytes, uint64_t offset, uint64_t bytes,
                       uint64_t context);

  // Counts memory that has no addresses (the threads' local memory). Returns false if not enough is
  // left.
  bool Charge(uint64_t bytes);
  void Uncharge(uint64_t bytes) { used_ -= bytes; }

  // Returns the allocation that contains `address`, or null.
  AllocationRef Find(uint64_t address) const;
  std::vector<AllocationRef> Owned(uint64_t context) const;

  bool Contains(uint64_t address) const { return address - base_ < bytes_; }
  uint64_t base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  uint64_t windows_base() const { return windows_base_; }
  uint64_t windows_bytes() const { return bytes_ - (windows_base_ - base_); }
  uint64_t capacity() const { return capacity_; }
  // Returns the file with the heap, [base, windows_base); the arena owns the descriptor. The file
  // holds only allocations: windows, frames and code are private memory.
  int heap_fd() const { return memfd_; }
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }

 private:
  bool MapHeap(std::string* why);
  uint64_t TakeRange(uint64_t bytes);
  void GiveRange(uint64_t base, uint64_t bytes);
  void DropPages(uint64_t base, uint64_t bytes) const;
  bool PunchHole(uint64_t base, uint64_t bytes) const;
  bool Shows(const AllocationRef& allocation) const;
  bool MovePart(const Allocation& allocation, uint64_t bytes) const;
  bool LeaveFile(Allocation& allocation);
  bool Meets(uint64_t base, uint64_t bytes) const;

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

  std::mutex exports_mutex_;

  mutable std::shared_mutex table_mutex_;
  std::map<uint64_t, AllocationRef> table_;  // by base
};

}  // namespace rgpu::emu
