#include "rgpu_client/shim/tables/reserved_addresses.h"

namespace rgpu::shim {

bool ReservedAddresses::Add(uint64_t base, ReservedRange range) {
  if (range.bytes == 0 || base + range.bytes < base) return false;
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(base);
  if (next != ranges_.end() && next->first - base < range.bytes) return false;
  if (next != ranges_.begin()) {
    const auto& [start, before] = *std::prev(next);
    if (base - start < before.bytes) return false;
  }
  ranges_[base] = range;
  return true;
}

std::optional<ReservedRange> ReservedAddresses::Take(uint64_t base, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(base);
  if (found == ranges_.end() || found->second.bytes != bytes) return std::nullopt;
  const ReservedRange range = found->second;
  ranges_.erase(found);
  return range;
}

bool ReservedAddresses::Holds(uint64_t base, uint64_t bytes) const {
  const std::shared_lock lock(mutex_);
  const auto next = ranges_.upper_bound(base);
  if (next == ranges_.begin()) return false;
  const auto& [start, range] = *std::prev(next);
  const uint64_t offset = base - start;
  return offset < range.bytes && bytes <= range.bytes - offset;
}

}  // namespace rgpu::shim
