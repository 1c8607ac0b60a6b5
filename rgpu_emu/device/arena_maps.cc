// The arena's part in virtual memory management: addresses without memory, memory without
// addresses, and mappings of the one to the other. All memory lies in the heap's file, so the same
// pages can be mapped at several addresses.
#include <sys/mman.h>

#include <algorithm>

#include "rgpu_emu/device/arena.h"

namespace rgpu::emu {
namespace {

// Lets addresses show a part of a file, without access.
bool ShowAt(uint64_t base, int file, uint64_t offset, uint64_t bytes) {
  void* at = mmap(Pointer(base), bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, file,
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) return false;
  madvise(at, bytes, MADV_DONTDUMP);
  madvise(at, bytes, MADV_DONTFORK);
  return true;
}

}  // namespace

uint64_t Arena::TakeAddresses(uint64_t bytes, uint64_t alignment, uint64_t hint) {
  const std::lock_guard lock(range_mutex_);
  const auto take = [&](auto range, uint64_t at) {
    const uint64_t base = range->first;
    const uint64_t end = base + range->second;
    free_.erase(range);
    if (at != base) free_[base] = at - base;
    if (at + bytes != end) free_[at + bytes] = end - at - bytes;
    return at;
  };
  const auto fits = [&](auto range, uint64_t at) {
    const uint64_t end = range->first + range->second;
    return at >= range->first && at < end && bytes <= end - at;
  };
  if (hint != 0 && hint % alignment == 0) {
    const auto next = free_.upper_bound(hint);
    if (next != free_.begin() && fits(std::prev(next), hint)) return take(std::prev(next), hint);
  }
  // From the end of the heap, because allocations are taken from its beginning.
  for (auto range = free_.end(); range != free_.begin();) {
    --range;
    if (range->second < bytes) continue;
    const uint64_t last = range->first + range->second - bytes;
    const uint64_t at = last - last % alignment;
    if (fits(range, at)) return take(range, at);
  }
  return 0;
}

void Arena::GiveAddresses(uint64_t base, uint64_t bytes) { GiveRange(base, bytes); }

uint64_t Arena::TakeMemory(uint64_t bytes) {
  if (!Charge(bytes)) return 0;
  const uint64_t place = TakeRange(bytes);
  if (place == 0) Uncharge(bytes);
  return place;
}

void Arena::GiveMemory(uint64_t place, uint64_t bytes) {
  DropPages(place, bytes);
  GiveRange(place, bytes);
  Uncharge(bytes);
}

bool Arena::Map(uint64_t base, uint64_t place, uint64_t bytes) const {
  return ShowAt(base, memfd_, place - base_, bytes);
}

bool Arena::MapFile(uint64_t base, int file, uint64_t bytes) {
  return ShowAt(base, file, 0, bytes);
}

bool Arena::Protect(uint64_t base, uint64_t bytes, bool read, bool write) const {
  const int access = write ? PROT_READ | PROT_WRITE : read ? PROT_READ : PROT_NONE;
  return mprotect(Pointer(base), bytes, access) == 0;
}

}  // namespace rgpu::emu
