// Page-locked host memory: either allocated in the band, so that kernels can use it, or registered
// where it lies.
#pragma once

#include <cstdint>
#include <map>
#include <shared_mutex>

#include "gen/cuda_abi.gen.h"

namespace rgpu::emu {

class RegisteredMemory {
 public:
  // Returns CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED if ranges overlap.
  CUresult Add(uint64_t base, uint64_t bytes, uint32_t flags);
  // Returns CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED unless `base` is the start of a range.
  CUresult Remove(uint64_t base);

  struct Range {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint32_t flags = 0;
    uint64_t id = 0;
  };
  bool Find(uint64_t address, Range* range) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, Range> ranges_;
  uint64_t next_id_ = uint64_t{1} << 52;
};

RegisteredMemory& Registered();

}  // namespace rgpu::emu
