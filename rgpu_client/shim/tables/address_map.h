// Adr: every range of addresses that the driver interface knows about, in order.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace rgpu::shim {

enum class RangeKind : uint8_t {
  kDevice,      // cuMemAlloc
  kPool,        // cuMemAllocAsync
  kGlobal,      // a module's variable: not freed by the program
  kPinned,      // cuMemHostAlloc
  kRegistered,  // cuMemHostRegister
};

struct Range {
  uint64_t base = 0;
  uint64_t bytes = 0;
  RangeKind kind = RangeKind::kDevice;
  uint32_t context = 0;
  int device = 0;
  unsigned flags = 0;      // of cuMemHostAlloc or cuMemHostRegister
  uint64_t pool = 0;       // handle of the pool it came from
  uint64_t owner = 0;      // module or library of a global
  uint64_t buffer_id = 0;  // unique in the process, set by Add
  bool sync_memops = false;

  bool is_device() const { return kind <= RangeKind::kGlobal; }
  bool is_host() const { return !is_device(); }
};

class AddressMap {
 public:
  // False: it overlaps a range that is there.
  bool Add(Range range);
  // The range that holds all of [address, address + bytes).
  std::optional<Range> Find(uint64_t address, uint64_t bytes = 1) const;
  // The range that begins at `base`, taken out if its kind is `first` or `second`.
  std::optional<Range> Take(uint64_t base, RangeKind first, RangeKind second);
  bool SetSyncMemops(uint64_t address, bool on);
  // Takes out what belongs to a context that is destroyed; pinned and registered memory as well.
  // Returns the pinned ranges, whose pages are the caller's to give back.
  std::vector<Range> DropContext(uint32_t context);
  void DropOwner(uint64_t owner);
  bool Overlaps(uint64_t address, uint64_t bytes) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
  uint64_t next_buffer_id_ = 1;
};

}  // namespace rgpu::shim
