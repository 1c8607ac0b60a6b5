// The address map: every range of addresses that the program got from the driver API or registered
// with it, in order of address.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace rgpu::shim {

enum class RangeKind : uint8_t {
  kDevice,      // cuMemAlloc
  kPool,        // cuMemAllocAsync
  kMapped,      // cuMemMap
  kImported,    // cuIpcOpenMemHandle
  kGlobal,      // a module's variable, which the program cannot free
  kManaged,     // cuMemAllocManaged
  kHostMapped,  // cuMemHostAlloc for the device as well: one address on both sides
  kHostImage,   // the device's image of registered or pinned memory
  kPinned,      // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  uint32_t context = 0;
  int device = 0;
  unsigned flags = 0;  // of cuMemHostAlloc or cuMemHostRegister
  uint64_t pool = 0;   // handle of the pool of a kPool range
  // Of a kGlobal range: its module or library; of a kMapped one: its memory; of a kHostImage: the
  // address of the host's memory.
  uint64_t owner = 0;
  uint64_t server_base = 0;  // of memory that the program uses in place: what the server allocated
  uint64_t buffer_id = 0;    // unique in the process, set by Add
  bool sync_memops = false;
  bool cut = false;       // of a kDevice range: its addresses are those of the memory credit
  unsigned access = 3;    // CUmemAccess_flags; a mapping begins without access
  bool exported = false;  // other processes may have it

  // The device can use it. Host and device use managed and mapped memory by one address.
  bool is_device() const { return kind <= RangeKind::kHostImage; }
  // The program uses it in place.
  bool is_visible() const { return kind == RangeKind::kManaged || kind == RangeKind::kHostMapped; }
  bool is_host_memory() const { return kind >= RangeKind::kHostMapped; }
  bool is_host() const { return !is_device(); }
  bool is_mapped() const { return kind == RangeKind::kMapped; }
  // Other processes may read and write it.
  bool is_shared() const { return exported || kind == RangeKind::kImported; }
};

class AddressMap {
 public:
  // Adds a range. False: the range is empty, or overlaps a known one.
  bool Add(Range range);
  // The range that holds all of [address, address + bytes).
  std::optional<Range> Find(uint64_t address, uint64_t bytes = 1) const;
  // True once there was page-locked memory. Takes no lock.
  bool any_pinned() const { return pinned_end_.load(std::memory_order_relaxed) != 0; }
  // False: `value` lies in no page-locked memory. Takes no lock.
  bool MayBePinned(uint64_t value) const {
    return value < pinned_end_.load(std::memory_order_relaxed) &&
           value >= pinned_begin_.load(std::memory_order_relaxed);
  }
  // Removes the range that begins at `base` if its kind is `first` or `second`, and returns it.
  std::optional<Range> Take(uint64_t base, RangeKind first, RangeKind second);
  bool SetSyncMemops(uint64_t address, bool on);
  void SetExported(uint64_t address);
  // All mappings of this memory.
  void SetExportedOwner(uint64_t owner);
  // True if [address, address + bytes) is device memory that the device may access. Mappings that
  // adjoin each other count as one range.
  bool MayAccess(uint64_t address, uint64_t bytes) const;
  // True if a range has a byte in [address, address + bytes).
  bool Meets(uint64_t address, uint64_t bytes) const;
  // The mappings that together are exactly [address, address + bytes). Empty: there are none.
  std::vector<Range> Tiling(uint64_t address, uint64_t bytes) const;
  void SetAccess(uint64_t base, unsigned access);
  // The range of the image of the host's memory at `host`.
  std::optional<Range> ImageOf(uint64_t host) const;
  // Removes all ranges of a context that is being destroyed, pinned and registered ones as well.
  // Returns those with pages of this process, which the caller must free, images, and those that
  // were cut from the memory credit, whose addresses the caller must give back.
  std::vector<Range> DropContext(uint32_t context);
  void DropOwner(uint64_t owner);

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
  uint64_t next_buffer_id_ = 1;
  // All kPinned ranges that there ever were lie between these.
  std::atomic<uint64_t> pinned_begin_{UINT64_MAX};
  std::atomic<uint64_t> pinned_end_{0};
};

}  // namespace rgpu::shim
