#include "rgpu_emu/device/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rgpu_common/native/base/lengths.h"

namespace rgpu::emu {
namespace {

constexpr uint64_t kLargestWindows = uint64_t{64} << 30;
// Every gap costs two mappings; by default Linux gives a process 65,530.
constexpr uint64_t kMostGaps = 16384;

}  // namespace

bool Arena::Open(const Settings& settings, std::string* why) {
  base_ = settings.band_base;
  bytes_ = settings.band_bytes;
  capacity_ = settings.memory_bytes;
  const uint64_t windows = base::RoundedUp(std::min(bytes_ / 4, kLargestWindows), kPageBytes);
  windows_base_ = base_ + bytes_ - windows;
  // One page more than the band: kernels redirect accesses outside the band to that page.
  void* at = mmap(Pointer(base_), bytes_ + kPageBytes, PROT_NONE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (at != Pointer(base_)) {
    *why = std::string("cannot reserve the device address band (") + std::strerror(errno) +
           "); set RGPU_EMU_BAND to a free range of addresses or raise the limit on address space "
           "(ulimit -v)";
    if (at != MAP_FAILED) munmap(at, bytes_ + kPageBytes);
    return false;
  }
  if (!MapHeap(why)) return false;
  madvise(Pointer(base_), bytes_ + kPageBytes, MADV_DONTDUMP);
  cursor_ = base_ + kPageBytes;
  free_[cursor_] = windows_base_ - cursor_;
  return true;
}

// Creates the heap as a file in memory, so that a client on the same host can share it.
bool Arena::MapHeap(std::string* why) {
  const uint64_t heap = windows_base_ - base_;
  memfd_ = memfd_create("rgpu-emu-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  // Sealed, because a client that shares the file could otherwise truncate it while kernels run.
  if (memfd_ < 0 || ftruncate(memfd_, static_cast<off_t>(heap)) != 0 ||
      fcntl(memfd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    *why = std::string("cannot create the device memory (") + std::strerror(errno) +
           "); allow memfd_create and file sizes up to the band (ulimit -f unlimited)";
    return false;
  }
  void* at =
      mmap(Pointer(base_), heap, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, memfd_, 0);
  if (at == MAP_FAILED) {
    *why = std::string("cannot map the device memory (") + std::strerror(errno) + ")";
    return false;
  }
  // After fork a child must not keep or reach the parent's device memory.
  madvise(Pointer(base_), bytes_ + kPageBytes, MADV_DONTFORK);
  return true;
}

// Returns the first range at or after the cursor that is large enough, or else the first at all.
uint64_t Arena::TakeRange(uint64_t bytes) {
  const std::lock_guard lock(range_mutex_);
  auto fits = [&](auto from, auto to) {
    return std::find_if(from, to, [&](const auto& range) { return range.second >= bytes; });
  };
  const auto start = free_.lower_bound(cursor_);
  auto it = fits(start, free_.end());
  if (it == free_.end()) it = fits(free_.begin(), start);
  if (it == free_.end()) it = fits(free_.begin(), free_.end());
  if (it == free_.end()) return 0;
  const uint64_t at = it->first;
  const uint64_t left = it->second - bytes;
  free_.erase(it);
  if (left != 0) free_[at + bytes] = left;
  cursor_ = at + bytes;
  return at;
}

void Arena::GiveRange(uint64_t base, uint64_t bytes) {
  const std::lock_guard lock(range_mutex_);
  auto next = free_.lower_bound(base);
  // A freed range is not joined with the one at the cursor, because it would be reused at once.
  const bool touches_cursor = next != free_.end() && next->first == cursor_;
  if (next != free_.end() && base + bytes == next->first && !touches_cursor) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += bytes;
      return;
    }
  }
  free_[base] = bytes;
}

bool Arena::Charge(uint64_t bytes) {
  uint64_t used = used_.load();
  do {
    if (bytes > capacity_ || used > capacity_ - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes));
  return true;
}

AllocationRef Arena::Allocate(uint64_t bytes, MemoryKind kind, uint64_t context) {
  if (bytes == 0 || bytes > windows_base_ - base_) return nullptr;
  const uint64_t map_bytes = base::RoundedUp(bytes, kPageBytes);
  const bool counts = kind != MemoryKind::kHost;
  if (counts && !Charge(map_bytes)) return nullptr;
  const uint64_t gap = live_.load() < kMostGaps ? kPageBytes : 0;
  const uint64_t at = TakeRange(map_bytes + gap);
  if (at == 0 || mprotect(Pointer(at), map_bytes, PROT_READ | PROT_WRITE) != 0) {
    if (at != 0) GiveRange(at, map_bytes + gap);
    if (counts) used_ -= map_bytes;
    return nullptr;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->base =
      kind == MemoryKind::kHost ? at : at + map_bytes - base::RoundedUp(bytes, kGranuleBytes);
  allocation->bytes = bytes;
  allocation->map_base = at;
  allocation->map_bytes = map_bytes;
  allocation->gap_bytes = gap;
  ++live_;
  allocation->kind = kind;
  allocation->context = context;
  allocation->id = next_id_.fetch_add(1);
  Show(allocation);
  return allocation;
}

bool Arena::Hide(const AllocationRef& allocation) {
  const std::unique_lock lock(table_mutex_);
  const auto it = table_.find(allocation->base);
  if (it == table_.end() || it->second != allocation) return false;
  table_.erase(it);
  return true;
}

void Arena::Show(const AllocationRef& allocation) {
  const std::unique_lock lock(table_mutex_);
  table_[allocation->base] = allocation;
}

bool Arena::Shows(const AllocationRef& allocation) const {
  const std::shared_lock lock(table_mutex_);
  const auto it = table_.find(allocation->base);
  return it != table_.end() && it->second == allocation;
}

bool Arena::PunchHole(uint64_t base, uint64_t bytes) const {
  const int punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  const auto offset = static_cast<off_t>(base - base_);
  return fallocate(memfd_, punch, offset, static_cast<off_t>(bytes)) == 0;
}

void Arena::DropPages(uint64_t base, uint64_t bytes) const {
  if (!PunchHole(base, bytes)) {
    // The next owner must not read what the previous one wrote.
    mprotect(Pointer(base), bytes, PROT_READ | PROT_WRITE);
    std::memset(Pointer(base), 0, bytes);
    madvise(Pointer(base), bytes, MADV_REMOVE);
  }
  mprotect(Pointer(base), bytes, PROT_NONE);
}

void Arena::Release(const AllocationRef& allocation) {
  const bool imported = allocation->kind == MemoryKind::kImported;
  const bool heap = LeaveFile(*allocation);
  // The heap's pages of an exported allocation went when it was moved, as far as it was moved.
  if (!imported && heap) DropPages(allocation->map_base, allocation->map_bytes);
  // Addresses that still show the other file are not used again.
  if (heap && !allocation->in_window) {
    GiveRange(allocation->map_base, allocation->map_bytes + allocation->gap_bytes);
  }
  --live_;
  if (!imported && allocation->kind != MemoryKind::kHost) used_ -= allocation->map_bytes;
}

AllocationRef Arena::Find(uint64_t address) const {
  const std::shared_lock lock(table_mutex_);
  auto it = table_.upper_bound(address);
  if (it == table_.begin()) return nullptr;
  --it;
  return address - it->second->base < it->second->bytes ? it->second : nullptr;
}

std::vector<AllocationRef> Arena::Owned(uint64_t context) const {
  std::vector<AllocationRef> out;
  const std::shared_lock lock(table_mutex_);
  for (const auto& [base, allocation] : table_) {
    if (allocation->context == context) out.push_back(allocation);
  }
  return out;
}

}  // namespace rgpu::emu
