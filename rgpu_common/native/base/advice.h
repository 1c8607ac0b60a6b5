// What a program has said about ranges of managed memory (cuMemAdvise, cuMemPrefetchAsync). The
// shim and the emulated device remember it for cuMemRangeGetAttribute; it has no other effect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

#include "gen/cuda_abi.gen.h"

namespace rgpu::base {

inline constexpr int kHostLocation = -1;     // CU_DEVICE_CPU
inline constexpr int kNoLocation = -2;       // CU_DEVICE_INVALID
inline constexpr int kAdvisedDevices = 63;   // devices whose advice is remembered

class Advice {
 public:
  // The range must lie in managed memory, and the location must exist.
  CUresult Advise(uint64_t address, uint64_t bytes, CUmem_advise advice,
                  const CUmemLocation& location);
  CUresult Prefetch(uint64_t address, uint64_t bytes, const CUmemLocation& location);
  // Writes the attribute of the whole range to `data`.
  CUresult Get(void* data, size_t data_bytes, CUmem_range_attribute attribute, uint64_t address,
               uint64_t bytes) const;
  // The memory is freed.
  void Forget(uint64_t address, uint64_t bytes);

 private:
  struct Place {
    int type = CU_MEM_LOCATION_TYPE_INVALID;
    int id = kNoLocation;
    bool operator==(const Place&) const = default;
  };
  struct Facts {
    bool read_mostly = false;
    Place preferred;
    Place prefetched;
    uint64_t accessed_by = 0;  // a bit for each device; the highest is the host's
    bool operator==(const Facts&) const = default;
  };
  struct Segment {
    uint64_t bytes = 0;
    Facts facts;
  };

  static Place PlaceOf(const CUmemLocation& location);
  void Cut(uint64_t address);
  template <typename Change>
  void ForEachIn(uint64_t address, uint64_t bytes, Change change);
  Facts Common(uint64_t address, uint64_t bytes) const;

  mutable std::mutex mutex_;
  std::map<uint64_t, Segment> segments_;  // only what differs from no advice at all
};

// True if the location is the host, or a device for which `exists(ordinal)` holds.
template <typename Exists>
bool IsLocation(const CUmemLocation& location, Exists exists) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return exists(location.id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    default:
      return false;
  }
}

// True if the advice is about its location.
inline bool NeedsLocation(CUmem_advise advice) {
  return advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
         advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
}

// The arguments of cuStreamAttachMemAsync: only whole allocations can be attached (a length of 0
// means all), and only to a stream that has a handle.
inline CUresult CheckAttachment(unsigned flags, bool null_stream, uint64_t offset, uint64_t length,
                                uint64_t bytes) {
  const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST ||
                     (flags == CU_MEM_ATTACH_SINGLE && !null_stream);
  const bool whole = offset == 0 && (length == 0 || length == bytes);
  return known && whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace rgpu::base
