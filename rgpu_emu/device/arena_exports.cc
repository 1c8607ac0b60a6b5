// The arena's part in sharing memory with other processes. An exported allocation gets a file of
// its own: in the heap's file it would keep all memory of its process, also after that has ended.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/exec/fault_guard.h"
#include "rgpu_emu/device/moved_ranges.h"
#include "rgpu_emu/device/shared_file.h"

namespace rgpu::emu {
namespace {

// The part of an allocation that is moved at once. Meanwhile kernels cannot write it, and its bytes
// are there twice.
constexpr uint64_t kPart = uint64_t{4} << 20;

// Maps [base, base + bytes) to the file at `offset`, for reading and writing.
bool MapShared(uint64_t base, uint64_t bytes, int file, uint64_t offset) {
  void* at = mmap(Pointer(base), bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file,
                  static_cast<off_t>(offset));
  if (at == MAP_FAILED) return false;
  madvise(at, bytes, MADV_DONTDUMP);
  madvise(at, bytes, MADV_DONTFORK);
  return true;
}

// Copies what [from, from + bytes) of the file `source` holds; what was never written stays zero in
// the new file, and takes no memory there.
bool CopyData(int source, uint64_t from, uint64_t bytes, const uint8_t* memory, int target,
              uint64_t to) {
  const auto end = static_cast<off_t>(from + bytes);
  auto at = static_cast<off_t>(from);
  while (at < end) {
    const off_t data = lseek(source, at, SEEK_DATA);
    if (data < 0) return errno == ENXIO;  // there are no bytes up to the end of the file
    if (data >= end) return true;
    off_t hole = lseek(source, data, SEEK_HOLE);
    if (hole < 0) return false;
    if (hole > end) hole = end;
    for (at = data; at < hole;) {
      const auto skip = static_cast<uint64_t>(at) - from;
      const ssize_t put = pwrite(target, memory + skip, static_cast<size_t>(hole - at),
                                 static_cast<off_t>(to + skip));
      if (put <= 0) return false;
      at += put;
    }
  }
  return true;
}

}  // namespace

MovedRanges& Moved() {
  static MovedRanges ranges;
  return ranges;
}

bool MovedRanges::Add(uint64_t base, uint64_t bytes) {
  for (Range& range : ranges_) {
    if (range.base.load() != 0) continue;
    range.bytes.store(bytes);
    range.base.store(base);
    return true;
  }
  return false;
}

void MovedRanges::Remove(uint64_t base) {
  for (Range& range : ranges_) {
    if (range.base.load() == base) range.base.store(0);
  }
}

bool MovedRanges::Hold(uint64_t address) const {
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    const uint64_t base = range.base.load();
    return base != 0 && address - base < range.bytes.load();
  });
}

// An export that fails in the middle leaves the allocation in two files, which nobody can see. The
// next one goes on where it stopped.
int Arena::Export(const AllocationRef& allocation) {
  const std::lock_guard lock(exports_mutex_);
  Allocation& own = *allocation;
  if (!Shows(allocation)) return -1;
  if (!own.file.valid()) {
    own.file = MakeSharedFile("rgpu-emu-export", own.map_bytes);
    if (!own.file.valid()) return -1;
    if (!Moved().Add(own.map_base, own.map_bytes)) {
      own.file.reset();
      return -1;
    }
    RetryFaultsIn([](uint64_t address) { return Moved().Hold(address); });
  }
  while (own.moved_bytes < own.map_bytes) {
    const uint64_t part = std::min(kPart, own.map_bytes - own.moved_bytes);
    if (!MovePart(own, part)) return -1;
    own.moved_bytes += part;
  }
  return own.file.get();
}

bool Arena::MovePart(const Allocation& allocation, uint64_t bytes) const {
  const uint64_t base = allocation.map_base + allocation.moved_bytes;
  if (mprotect(Pointer(base), bytes, PROT_READ) != 0) return false;
  const auto* memory = static_cast<const uint8_t*>(Pointer(base));
  const bool moved = CopyData(memfd_, base - base_, bytes, memory, allocation.file.get(),
                              allocation.moved_bytes) &&
                     MapShared(base, bytes, allocation.file.get(), allocation.moved_bytes);
  if (!moved) {
    // Kernels would otherwise try to write there for ever.
    if (mprotect(Pointer(base), bytes, PROT_READ | PROT_WRITE) != 0) std::abort();
    return false;
  }
  PunchHole(base, bytes);
  return true;
}

// If the memory lies in a file of its own, the heap shows at its addresses again, without access.
// Other processes may keep the file. False: the system refuses that. The lock is taken in any case,
// because another thread may be exporting the memory.
bool Arena::LeaveFile(Allocation& allocation) {
  const std::lock_guard lock(exports_mutex_);
  if (allocation.kind != MemoryKind::kImported && !allocation.file.valid()) return true;
  Moved().Remove(allocation.map_base);
  const bool left = Unmap(allocation.map_base, allocation.map_bytes);
  allocation.file.reset();
  // The client gives addresses of the window to new memory, which another process would then share.
  if (!left && allocation.in_window) std::abort();
  return left;
}

AllocationRef Arena::Import(int file, uint64_t file_bytes, uint64_t offset, uint64_t bytes,
                            uint64_t context) {
  const bool inside = bytes != 0 && offset < file_bytes && bytes <= file_bytes - offset;
  if (!inside || file_bytes % kPageBytes != 0 || file_bytes > windows_base_ - base_) return nullptr;
  const uint64_t at = TakeRange(file_bytes + kPageBytes);
  if (at == 0) return nullptr;
  if (!MapShared(at, file_bytes, file, 0)) {
    GiveRange(at, file_bytes + kPageBytes);
    return nullptr;
  }
  auto allocation = std::make_shared<Allocation>();
  allocation->base = at + offset;
  allocation->bytes = bytes;
  allocation->map_base = at;
  allocation->map_bytes = file_bytes;
  allocation->gap_bytes = kPageBytes;
  allocation->kind = MemoryKind::kImported;
  allocation->context = context;
  allocation->id = NewId();
  ++live_;
  Show(allocation);
  return allocation;
}

}  // namespace rgpu::emu
