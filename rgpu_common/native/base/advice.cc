#include "rgpu_common/native/base/advice.h"

#include <algorithm>
#include <cstring>

namespace rgpu::base {
namespace {

constexpr uint64_t kHostBit = 1ULL << 63;

uint64_t BitOf(const CUmemLocation& location) {
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return kHostBit;
  return location.id < kAdvisedDevices ? 1ULL << location.id : 0;
}

CUresult StoreInt(void* data, size_t data_bytes, int value) {
  if (data_bytes != sizeof(int)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(data, &value, sizeof(int));
  return CUDA_SUCCESS;
}

// The devices of the bits, the host last; what is left of `data` gets CU_DEVICE_INVALID.
CUresult StoreDevices(void* data, size_t data_bytes, uint64_t bits) {
  if (data_bytes % sizeof(int) != 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t room = data_bytes / sizeof(int);
  auto* out = static_cast<uint8_t*>(data);
  size_t used = 0;
  const auto put = [&](int device) {
    if (used < room) std::memcpy(out + sizeof(int) * used++, &device, sizeof(int));
  };
  for (int device = 0; device < kAdvisedDevices; ++device) {
    if ((bits >> device & 1) != 0) put(device);
  }
  if ((bits & kHostBit) != 0) put(kHostLocation);
  while (used < room) put(kNoLocation);
  return CUDA_SUCCESS;
}

}  // namespace

Advice::Place Advice::PlaceOf(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    return {CU_MEM_LOCATION_TYPE_DEVICE, location.id};
  }
  return {CU_MEM_LOCATION_TYPE_HOST, kHostLocation};
}

// Lets a segment end at `address` if one has the address inside.
void Advice::Cut(uint64_t address) {
  auto it = segments_.upper_bound(address);
  if (it == segments_.begin()) return;
  --it;
  const uint64_t before = address - it->first;
  if (before == 0 || before >= it->second.bytes) return;
  segments_[address] = {it->second.bytes - before, it->second.facts};
  it->second.bytes = before;
}

// Calls change(facts) for all parts of the range; parts without a segment get one.
template <typename Change>
void Advice::ForEachIn(uint64_t address, uint64_t bytes, Change change) {
  const uint64_t end = address + bytes;
  Cut(address);
  Cut(end);
  for (uint64_t at = address; at < end;) {
    const auto next = segments_.lower_bound(at);
    const uint64_t found = next == segments_.end() ? end : std::min(next->first, end);
    if (found > at) {
      segments_[at] = {found - at, {}};
      continue;
    }
    change(next->second.facts);
    at += next->second.bytes;
    if (next->second.facts == Facts{}) segments_.erase(next);
  }
}

CUresult Advice::Advise(uint64_t address, uint64_t bytes, CUmem_advise advice,
                        const CUmemLocation& location) {
  const std::lock_guard lock(mutex_);
  const Place place = PlaceOf(location);
  const uint64_t bit = BitOf(location);
  ForEachIn(address, bytes, [&](Facts& facts) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        facts.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        facts.preferred = place;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        facts.preferred = {};
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        facts.accessed_by |= bit;
        break;
      default:
        facts.accessed_by &= ~bit;
    }
  });
  return CUDA_SUCCESS;
}

CUresult Advice::Prefetch(uint64_t address, uint64_t bytes, const CUmemLocation& location) {
  const std::lock_guard lock(mutex_);
  ForEachIn(address, bytes, [&](Facts& facts) { facts.prefetched = PlaceOf(location); });
  return CUDA_SUCCESS;
}

// What holds for every byte of the range.
Advice::Facts Advice::Common(uint64_t address, uint64_t bytes) const {
  const uint64_t end = address + bytes;
  Facts common;
  bool first = true;
  const auto join = [&](const Facts& facts) {
    if (first) common = facts;
    first = false;
    common.read_mostly = common.read_mostly && facts.read_mostly;
    common.accessed_by &= facts.accessed_by;
    if (common.preferred != facts.preferred) common.preferred = {};
    if (common.prefetched != facts.prefetched) common.prefetched = {};
  };
  uint64_t at = address;
  auto it = segments_.upper_bound(address);
  if (it != segments_.begin()) --it;
  for (; it != segments_.end() && it->first < end; ++it) {
    const uint64_t segment_end = it->first + it->second.bytes;
    if (segment_end <= at) continue;
    if (it->first > at) join({});
    join(it->second.facts);
    at = segment_end;
  }
  if (at < end) join({});
  return common;
}

CUresult Advice::Get(void* data, size_t data_bytes, CUmem_range_attribute attribute,
                     uint64_t address, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const Facts facts = Common(address, bytes);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      return StoreInt(data, data_bytes, facts.read_mostly ? 1 : 0);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      return StoreDevices(data, data_bytes, facts.accessed_by);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      return StoreInt(data, data_bytes, facts.preferred.id);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      return StoreInt(data, data_bytes, facts.preferred.type);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      return StoreInt(data, data_bytes, facts.prefetched.id);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      return StoreInt(data, data_bytes, facts.prefetched.type);
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void Advice::Forget(uint64_t address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ForEachIn(address, bytes, [](Facts& facts) { facts = {}; });
}

}  // namespace rgpu::base
