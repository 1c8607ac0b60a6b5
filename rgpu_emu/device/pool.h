// Memory pools: allocation and free in stream order.
//
// A freed block stays in its pool. The stream that freed it may reuse it at once, other streams
// when the free has been carried out. When the host waits, cached blocks above the release
// threshold are freed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rgpu_emu/device/arena.h"
#include "rgpu_emu/device/stream.h"

namespace rgpu::emu {

class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // max_bytes 0: limited only by the device's memory.
  Pool(uint64_t pool_handle, uint64_t max_bytes) : handle(pool_handle), max_bytes_(max_bytes) {}

  CUresult Allocate(uint64_t bytes, const std::shared_ptr<Stream>& stream, uint64_t* address);
  // Takes back `allocation`, which is hidden already. Any stream may reuse it when `after` is done,
  // and `stream` (may be null) at once.
  void Free(const AllocationRef& allocation, const std::shared_ptr<Stream>& stream, Fences after);

  // Frees cached blocks until at most `keep` bytes are reserved.
  void TrimTo(uint64_t keep);
  void TrimToThreshold();
  // From now on freed blocks are given back at once, because the pool was destroyed.
  void Retire();

  CUresult Set(CUmemPool_attribute attribute, const void* value);
  CUresult Get(CUmemPool_attribute attribute, void* value);

  const uint64_t handle;

 private:
  struct Block {
    AllocationRef memory;
    std::shared_ptr<Stream> stream;
    Fences after;
  };

  AllocationRef Take(uint64_t bytes, const Stream* stream);
  AllocationRef TakeWaiting(uint64_t bytes, Fences* after);
  AllocationRef Grow(uint64_t bytes, uint64_t context);
  void Settle();
  std::vector<AllocationRef> Cut(uint64_t keep);
  void Count(const AllocationRef& allocation);

  std::mutex mutex_;
  const uint64_t max_bytes_;
  std::vector<AllocationRef> cached_;
  std::vector<Block> freed_;
  uint64_t threshold_ = 0;
  uint64_t used_ = 0;
  uint64_t used_high_ = 0;
  uint64_t reserved_ = 0;
  uint64_t reserved_high_ = 0;
  int reuse_[3] = {1, 1, 1};  // follow event dependencies, opportunistic, internal dependencies
  bool retired_ = false;
};

// For every pool: trims it to its threshold, or to `keep`.
void TrimPoolsAfterSync();
void TrimPools(uint64_t keep);

}  // namespace rgpu::emu
