#include "rgpu_server/executor/virtual_memory.h"

#include <algorithm>
#include <utility>

#include "rgpu_common/native/base/ranges.h"
#include "rgpu_server/executor/table.h"

namespace rgpu::exec {

namespace {

uint64_t BytesOf(const Mapping& mapping) { return mapping.bytes; }
uint64_t BytesOf(const std::shared_ptr<Reservation>& reservation) { return reservation->bytes; }

}  // namespace

bool VirtualMemory::Meets(uint64_t base, uint64_t bytes) const {
  return rgpu::base::AnyRangeIn(mappings_, base, bytes,
                                [](const auto& one) { return BytesOf(one); });
}

void VirtualMemory::Reserve(uint64_t base, uint64_t bytes) {
  auto reservation = std::make_shared<Reservation>();
  reservation->bytes = bytes;
  reserved_[base] = std::move(reservation);
  reserved_bytes_ += bytes;
  ++g_handles;
}

std::shared_ptr<Reservation> VirtualMemory::Take(uint64_t base, uint64_t bytes) {
  const auto found = reserved_.find(base);
  if (found == reserved_.end() || found->second->bytes != bytes || Meets(base, bytes)) {
    return nullptr;
  }
  std::shared_ptr<Reservation> taken = std::move(found->second);
  reserved_.erase(found);
  reserved_bytes_ -= bytes;
  --g_handles;
  return taken;
}

bool VirtualMemory::Map(uint64_t base, uint64_t bytes,
                        const std::shared_ptr<MappableMemory>& memory) {
  const auto found = rgpu::base::RangeHolding(reserved_, base, bytes,
                                              [](const auto& one) { return BytesOf(one); });
  if (found == reserved_.end() || Meets(base, bytes)) return false;
  const auto& [start, reservation] = *found;
  mappings_[base] = {bytes, memory, reservation, start, true};
  ++memory->mapped;
  ++memory->held;
  ++reservation->held;
  ++g_handles;
  return true;
}

void VirtualMemory::Forget(uint64_t base) {
  const Mapping mapping = Remove(base);
  --mapping.memory->held;
  --mapping.reservation->held;
}

std::pair<VirtualMemory::Mappings::iterator, VirtualMemory::Mappings::iterator>
VirtualMemory::Tiling(uint64_t base, uint64_t bytes) {
  return rgpu::base::RangesTiling(
      mappings_, base, bytes, [](const auto& one) { return BytesOf(one); },
      [](const Mapping& one) { return !one.busy; });
}

Mapping VirtualMemory::Remove(uint64_t base) {
  const auto found = mappings_.find(base);
  Mapping mapping = std::move(found->second);
  mappings_.erase(found);
  --mapping.memory->mapped;
  --g_handles;
  return mapping;
}

Mapping* VirtualMemory::Find(uint64_t base) {
  const auto found = mappings_.find(base);
  return found == mappings_.end() ? nullptr : &found->second;
}

void VirtualMemory::RemoveLeaving(uint64_t base) {
  const auto found = std::ranges::find(leaving_, base, &Span::base);
  if (found != leaving_.end()) leaving_.erase(found);
}

bool VirtualMemory::IsLeaving(uint64_t base, uint64_t bytes) const {
  return std::ranges::any_of(leaving_, [&](const Span& span) {
    return base - span.base < span.bytes || span.base - base < bytes;
  });
}

}  // namespace rgpu::exec
