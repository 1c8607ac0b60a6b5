// Address bands: ranges that both ends set aside at the same place, so that a number is a host
// address or a device address, never both.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "rgpu_common/native/wire/fields.h"

namespace rgpu::shim {

// Reserves, without access, what it can of some well-known places.  Returns what it got, best
// first.
std::vector<wire::Band> ReserveDeviceBands();
std::vector<wire::Band> ReservePinnedBands();
void GiveBack(const wire::Band& band);

// Pinned host memory: pages of the pinned band, given to the program.
class PinnedMemory {
 public:
  void Init(const wire::Band& band);
  // Zeroed, page-aligned memory; null: the band is full, or the system refuses.
  void* Allocate(uint64_t bytes);
  // `bytes` as given to Allocate.
  void Free(void* address, uint64_t bytes);

 private:
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // base -> bytes, no two adjacent
};

// Without a band the driver on the other side chooses addresses as it likes.  What it chose is set
// aside here too, without access, so that no host memory gets the same number afterwards.  Where
// host memory was first, a copy that names no direction takes the number for the device's.
class ClaimedAddresses {
 public:
  void Add(uint64_t base, uint64_t bytes);

 private:
  std::mutex mutex_;
  std::set<uint64_t> claimed_;  // granules
};

}  // namespace rgpu::shim
