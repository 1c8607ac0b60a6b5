#include "rgpu_client/shim/bands.h"

#include <sys/mman.h>

#include <array>

namespace rgpu::shim {
namespace {

constexpr uint64_t kGiB = 1ULL << 30;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kGranule = 2U << 20;  // of ClaimedAddresses
constexpr int kReserve = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

// These addresses lie above the heap of a program linked at a fixed address, and below the region
// where the kernel places mappings.
constexpr std::array<uint64_t, 12> kDeviceBases = {
    0x200000000000, 0x300000000000, 0x100000000000, 0x400000000000, 0x080000000000, 0x500000000000,
    // The sessions of a process have bands of their own.
    0x210000000000, 0x310000000000, 0x110000000000, 0x410000000000, 0x220000000000, 0x320000000000};
constexpr std::array<uint64_t, 12> kPinnedBases = {
    0x280000000000, 0x380000000000, 0x180000000000, 0x480000000000, 0x290000000000, 0x390000000000,
    0x190000000000, 0x490000000000, 0x2a0000000000, 0x3a0000000000, 0x1a0000000000, 0x4a0000000000};
constexpr size_t kCandidates = 3;

bool Reserve(uint64_t base, uint64_t bytes) {
  void* const want = reinterpret_cast<void*>(base);
  void* const got = mmap(want, bytes, PROT_NONE, kReserve | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (got == want) return true;
  munmap(got, bytes);  // an old kernel treats MAP_FIXED_NOREPLACE as a hint
  return false;
}

// Tries the sizes from the largest on. The large ones fail under RLIMIT_AS or in a small address
// space.
template <size_t N>
std::vector<wire::Band> ReserveSome(const std::array<uint64_t, N>& bases,
                                    std::initializer_list<uint64_t> sizes) {
  std::vector<wire::Band> bands;
  for (const uint64_t bytes : sizes) {
    for (const uint64_t base : bases) {
      if (Reserve(base, bytes)) bands.push_back({base, bytes});
      if (bands.size() == kCandidates) return bands;
    }
    if (!bands.empty()) return bands;
  }
  return bands;
}

}  // namespace

std::vector<wire::Band> ReserveDeviceBands() {
  return ReserveSome(kDeviceBases, {1024 * kGiB, 256 * kGiB, 64 * kGiB, 16 * kGiB, 4 * kGiB});
}

std::vector<wire::Band> ReservePinnedBands() {
  return ReserveSome(kPinnedBases, {256 * kGiB, 64 * kGiB, 16 * kGiB, 4 * kGiB, kGiB});
}

void GiveBack(const wire::Band& band) { munmap(reinterpret_cast<void*>(band.base), band.size); }

bool Claim(const wire::Band& band) { return Reserve(band.base, band.size); }

// If that fails, the pages stay, and their addresses are given out again all the same.
void ReserveAgain(const wire::Band& band) {
  void* const at = reinterpret_cast<void*>(band.base);
  static_cast<void>(mmap(at, band.size, PROT_NONE, kReserve | MAP_FIXED, -1, 0));
}

void PinnedMemory::Init(const wire::Band& band) {
  if (band.size != 0) free_[band.base] = band.size;
}

void* PinnedMemory::Allocate(uint64_t bytes) {
  if (bytes == 0 || bytes > UINT64_MAX - kPage) return nullptr;
  const uint64_t size = (bytes + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const auto [base, room] = *it;
    if (room < size) continue;
    void* const at = reinterpret_cast<void*>(base);
    if (mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
        at) {
      return nullptr;
    }
    free_.erase(it);
    if (room > size) free_[base + size] = room - size;
    return at;
  }
  return nullptr;
}

void PinnedMemory::Free(void* address, uint64_t bytes) {
  uint64_t size = (bytes + kPage - 1) / kPage * kPage;
  auto base = reinterpret_cast<uint64_t>(address);
  ReserveAgain({base, size});
  const std::lock_guard lock(mutex_);
  auto next = free_.lower_bound(base);
  if (next != free_.end() && next->first == base + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == base) {
      before->second += size;
      return;
    }
  }
  free_[base] = size;
}

// A granule is never given back: several allocations may share it, and the driver uses it again.
void ClaimedAddresses::Add(uint64_t base, uint64_t bytes) {
  if (bytes == 0 || base + bytes < base) return;
  const std::lock_guard lock(mutex_);
  for (uint64_t at = base / kGranule; at <= (base + bytes - 1) / kGranule; ++at) {
    if (claimed_.insert(at).second && !Reserve(at * kGranule, kGranule)) foreign_.insert(at);
  }
}

bool ClaimedAddresses::Hold(uint64_t base, uint64_t bytes) {
  if (bytes == 0 || base + bytes < base) return false;
  const std::lock_guard lock(mutex_);
  for (uint64_t at = base / kGranule; at <= (base + bytes - 1) / kGranule; ++at) {
    if (!claimed_.contains(at) || foreign_.contains(at)) return false;
  }
  return true;
}

}  // namespace rgpu::shim
