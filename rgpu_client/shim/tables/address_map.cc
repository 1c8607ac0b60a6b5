#include "rgpu_client/shim/tables/address_map.h"

#include <mutex>

#include "rgpu_common/native/base/ranges.h"

namespace rgpu::shim {
namespace {

uint64_t BytesOf(const Range& range) { return range.bytes; }

}  // namespace

bool AddressMap::Add(Range range) {
  if (range.bytes == 0 || range.base + range.bytes < range.base) return false;
  const std::lock_guard lock(mutex_);
  if (base::AnyRangeIn(ranges_, range.base, range.bytes, BytesOf)) return false;
  range.buffer_id = next_buffer_id_++;
  ranges_.emplace(range.base, range);
  if (range.kind == RangeKind::kPinned) {
    pinned_begin_ = std::min(pinned_begin_.load(), range.base);
    pinned_end_ = std::max(pinned_end_.load(), range.base + range.bytes);
  }
  return true;
}

std::optional<Range> AddressMap::Find(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  const auto it = base::RangeHolding(ranges_, address, bytes, BytesOf);
  if (it == ranges_.end()) return std::nullopt;
  return it->second;
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
  const auto it = base::RangeAt(ranges_, address, BytesOf);
  if (it == ranges_.end()) return false;
  it->second.sync_memops = on;
  return true;
}

void AddressMap::SetExported(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto it = base::RangeAt(ranges_, address, BytesOf);
  if (it != ranges_.end()) it->second.exported = true;
}

bool AddressMap::MayAccess(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  for (auto it = base::RangeAt(ranges_, address, BytesOf); it != ranges_.end(); ++it) {
    const Range& range = it->second;
    // The range behind a mapping may leave a gap: the offset then wraps around.
    const uint64_t offset = address - range.base;
    if (offset >= range.bytes || !range.is_device() || range.access == 0) return false;
    if (bytes <= range.bytes - offset) return true;
    const auto next = std::next(it);
    if (next == ranges_.end() || !range.is_mapped() || !next->second.is_mapped()) return false;
    bytes -= range.bytes - offset;
    address = range.base + range.bytes;
  }
  return false;
}

bool AddressMap::Meets(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  return base::AnyRangeIn(ranges_, address, bytes, BytesOf);
}

std::vector<Range> AddressMap::Tiling(uint64_t address, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  const auto mapped = [](const Range& range) { return range.is_mapped(); };
  const auto [first, end] = base::RangesTiling(ranges_, address, bytes, BytesOf, mapped);
  std::vector<Range> tiles;
  for (auto it = first; it != end; ++it) tiles.push_back(it->second);
  return tiles;
}

std::optional<Range> AddressMap::ImageOf(uint64_t host) const {
  const std::shared_lock lock(mutex_);
  for (const auto& [base, range] : ranges_) {
    if (range.kind == RangeKind::kHostImage && range.owner == host) return range;
  }
  return std::nullopt;
}

void AddressMap::SetAccess(uint64_t base, unsigned access) {
  const std::lock_guard lock(mutex_);
  const auto it = ranges_.find(base);
  if (it != ranges_.end()) it->second.access = access;
}

void AddressMap::SetExportedOwner(uint64_t owner) {
  const std::lock_guard lock(mutex_);
  for (auto& [base, range] : ranges_) {
    if (range.is_mapped() && range.owner == owner) range.exported = true;
  }
}

std::vector<Range> AddressMap::DropContext(uint32_t context) {
  std::vector<Range> left;
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const auto& entry) {
    const Range& range = entry.second;
    if (range.context != context) return false;
    const bool holds = range.is_visible() || range.kind == RangeKind::kPinned ||
                       range.kind == RangeKind::kHostImage || range.cut;
    if (holds) left.push_back(range);
    return true;
  });
  return left;
}

void AddressMap::DropOwner(uint64_t owner) {
  const std::lock_guard lock(mutex_);
  std::erase_if(ranges_, [&](const auto& entry) { return entry.second.owner == owner; });
}

}  // namespace rgpu::shim
