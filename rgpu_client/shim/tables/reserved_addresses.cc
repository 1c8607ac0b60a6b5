#include "rgpu_client/shim/tables/reserved_addresses.h"

#include "rgpu_common/native/base/ranges.h"

namespace rgpu::shim {
namespace {

uint64_t BytesOf(const ReservedRange& range) { return range.bytes; }

}  // namespace

bool ReservedAddresses::Add(uint64_t base, ReservedRange range) {
  if (range.bytes == 0 || base + range.bytes < base) return false;
  const std::lock_guard lock(mutex_);
  if (rgpu::base::AnyRangeIn(ranges_, base, range.bytes, BytesOf)) return false;
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
  return rgpu::base::RangeHolding(ranges_, base, bytes, BytesOf) != ranges_.end();
}

}  // namespace rgpu::shim
