#include "rgpu_client/shim/tables/address_map.h"

#include <mutex>

namespace rgpu::shim {
namespace {

using Ranges = std::map<uint64_t, Range>;

// True if a range of `ranges` has a byte in [address, address + bytes).
bool Meets(const Ranges& ranges, uint64_t address, uint64_t bytes) {
  auto next = ranges.lower_bound(address);
  if (next != ranges.end() && next->first - address < bytes) return true;
  if (next == ranges.begin()) return false;
  const Range& before = std::prev(next)->second;
  return address - before.base < before.bytes;
}

}  // namespace

bool AddressMap::Add(Range range) {
  if (range.bytes == 0 || range.base + range.bytes < range.base) return false;
  const std::lock_guard lock(mutex_);
  if (Meets(ranges_, range.base, range.bytes)) return false;
  range.buffer_id = next_buffer_id_++;
  ranges_.emplace(range.base, range);
  return true;
}

std::optional<Range> AddressMap::Find(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return std::nullopt;
  const Range& range = std::prev(next)->second;
  const uint64_t offset = address - range.base;
  if (offset >= range.bytes || bytes > range.bytes - offset) return std::nullopt;
  return range;
}

std::optional<Range> AddressMap::Take(uint64_t base, RangeKind first, RangeKind second) {
  const std::lock_guard lock(mutex_);
  auto it = ranges_.find(base);
  if (it == ranges_.end()) return std::nullopt;
  const Range range = it->second;
  if (range.kind != first && range.kind != second) return std::nullopt;
  ranges_.erase(it);
  return range;
}

bool AddressMap::SetSyncMemops(uint64_t address, bool on) {
  const std::lock_guard lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  Range& range = std::prev(next)->second;
  if (address - range.base >= range.bytes) return false;
  range.sync_memops = on;
  return true;
}

std::vector<Range> AddressMap::DropContext(uint32_t context) {
  std::vector<Range> pinned;
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const auto& entry) {
    const Range& range = entry.second;
    if (range.context != context) return false;
    if (range.kind == RangeKind::kPinned) pinned.push_back(range);
    return true;
  });
  return pinned;
}

void AddressMap::DropOwner(uint64_t owner) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const auto& entry) { return entry.second.owner == owner; });
}

}  // namespace rgpu::shim
