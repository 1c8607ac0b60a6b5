#include "rgpu_client/shim/tables/address_map.h"

#include <mutex>

namespace rgpu::shim {
namespace {

using Ranges = std::map<uint64_t, Range>;

// True if a range of `ranges` has a byte in [address, address + bytes).
bool HasByteIn(const Ranges& ranges, uint64_t address, uint64_t bytes) {
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
  if (HasByteIn(ranges_, range.base, range.bytes)) return false;
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

bool AddressMap::MayAccess(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return false;
  for (auto it = std::prev(next); it != ranges_.end(); ++it) {
    const Range& range = it->second;
    const uint64_t offset = address - range.base;
    if (offset >= range.bytes || !range.is_device() || range.access == 0) return false;
    if (bytes <= range.bytes - offset) return true;
    if (range.kind != RangeKind::kMapped) return false;
    bytes -= range.bytes - offset;
    address = range.base + range.bytes;
    if (std::next(it) != ranges_.end() && std::next(it)->second.kind != RangeKind::kMapped) {
      return false;
    }
  }
  return false;
}

bool AddressMap::Meets(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  return HasByteIn(ranges_, address, bytes);
}

std::vector<Range> AddressMap::Tiling(uint64_t address, uint64_t bytes) const {
  std::vector<Range> tiles;
  const std::shared_lock lock(mutex_);
  uint64_t at = address;
  for (auto it = ranges_.find(address); it != ranges_.end() && at - address < bytes; ++it) {
    const Range& range = it->second;
    if (range.base != at || range.kind != RangeKind::kMapped) return {};
    tiles.push_back(range);
    at += range.bytes;
  }
  if (at - address != bytes) tiles.clear();
  return tiles;
}

void AddressMap::SetAccess(uint64_t base, unsigned access) {
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find(base);
  if (it != ranges_.end()) it->second.access = access;
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
