// Address bands: address ranges that the client and the worker reserve at the same place. Every
// number is therefore a host address or a device address, never both.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

// Reserve candidate bands at fixed places, as mappings without access. Return those that the kernel
// granted, the preferred one first.
std::vector<wire::Band> ReserveDeviceBands();
std::vector<wire::Band> ReservePinnedBands();
void GiveBack(const wire::Band& band);
// Maps exactly these addresses without access. False: some of them are in use.
bool Claim(const wire::Band& band);

// Unmaps what lies at these addresses, and reserves them without access again.
void ReserveAgain(const wire::Band& band);

// Allocator for pinned host memory. Its pages lie in the pinned band.
class PinnedMemory {
 public:
  void Init(const wire::Band& band);
  // Returns zeroed, page-aligned memory. Null: the band is full, or mmap fails.
  void* Allocate(uint64_t bytes);
  // `bytes` is the size that was passed to Allocate.
  void Free(void* address, uint64_t bytes);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // base -> bytes, no two adjacent
};

// Used when the server has no device band, so that the server's driver chooses device addresses
// freely. Each address that the driver chose is reserved in the client too, without access, so that
// no later host allocation gets the same number. If host memory already lies there, cuMemcpy, which
// is told no direction, treats the number as a device address.
class ClaimedAddresses {
 public:
  void Add(uint64_t base, uint64_t bytes);
  // True if this process has reserved all the addresses, so that none of them is host memory.
  bool Hold(uint64_t base, uint64_t bytes);

 private:
  std::mutex mutex_;
  std::set<uint64_t> claimed_;  // indices of the granules that were seen
  std::set<uint64_t> foreign_;  // those of them in which host memory lies
};

}  // namespace rgpu::shim
