#include "rgpu_server/executor/virtual_memory.h"

#include <algorithm>
#include <utility>

#include "rgpu_server/executor/table.h"

namespace rgpu::exec {

bool VirtualMemory::Meets(uint64_t base, uint64_t bytes) const {
  const auto next = mappings_.lower_bound(base);
  if (next != mappings_.end() && next->first - base < bytes) return true;
  if (next == mappings_.begin()) return false;
  const auto& [start, before] = *std::prev(next);
  return base - start < before.bytes;
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
  const auto next = reserved_.upper_bound(base);
  if (next == reserved_.begin() || Meets(base, bytes)) return false;
  const auto& [start, reservation] = *std::prev(next);
  const uint64_t offset = base - start;
  if (offset >= reservation->bytes || bytes > reservation->bytes - offset) return false;
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
  const auto first = mappings_.find(base);
  uint64_t at = base;
  auto it = first;
  for (; it != mappings_.end() && it->first == at && !it->second.busy && at - base < bytes; ++it) {
    at += it->second.bytes;
  }
  if (bytes == 0 || at - base != bytes) return {mappings_.end(), mappings_.end()};
  return {first, it};
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
