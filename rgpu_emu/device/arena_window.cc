// The arena's part in memory credit: allocations whose addresses the client of a worker has chosen.
// The client leaves a gap behind each.
#include <sys/mman.h>

#include "rgpu_emu/device/arena.h"

namespace rgpu::emu {

bool Arena::Meets(uint64_t base, uint64_t bytes) const {
  const auto meets = [&](const Allocation& other) {
    return other.map_base < base + bytes && base < other.map_base + other.map_bytes;
  };
  const std::shared_lock lock(table_mutex_);
  const auto next = table_.lower_bound(base);
  if (next != table_.end() && meets(*next->second)) return true;
  return next != table_.begin() && meets(*std::prev(next)->second);
}

AllocationRef Arena::Back(uint64_t base, uint64_t bytes, uint64_t context) {
  const uint64_t map_base = base / kPageBytes * kPageBytes;
  if (bytes == 0 || map_base < base_ || map_base >= windows_base_ || bytes > windows_base_ - base) {
    return nullptr;
  }
  const uint64_t map_bytes = (base - map_base + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (Meets(map_base, map_bytes) ||
      mprotect(reinterpret_cast<void*>(map_base), map_bytes, PROT_READ | PROT_WRITE) != 0) {
    return nullptr;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->base = base;
  allocation->bytes = bytes;
  allocation->map_base = map_base;
  allocation->map_bytes = map_bytes;
  allocation->in_window = true;
  allocation->context = context;
  allocation->id = next_id_.fetch_add(1);
  ++live_;
  Show(allocation);
  return allocation;
}

}  // namespace rgpu::emu
