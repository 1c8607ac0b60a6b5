// The memory of alloc nodes: which of it the program may use, and what a launch changes about that.
//
// Pure. The model's lock guards it.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "rgpu_common/native/graph/instance.h"

namespace rgpu::graph {

class Memory {
 public:
  // True once there was an alloc node. Read without a lock.
  bool any() const { return any_.load(std::memory_order_acquire); }
  // A new alloc node.
  void Know(const std::shared_ptr<Allocation>& allocation);
  // True if an alloc node that exists has this address.
  bool Knows(CUdeviceptr address) const;

  using Owned = std::vector<std::shared_ptr<Allocation>>;
  // A launch allocates and frees. CUDA_ERROR_INVALID_VALUE: memory of an earlier launch is still in
  // use, or memory that the graph frees is not. Then nothing changes. `*undo` undoes the launch;
  // the caller destroys it without the lock.
  struct Undo {
    Owned taken;
    Owned freed;
  };
  CUresult Launch(const Instance& instance, Undo* undo);
  void Revert(const Undo& undo);
  // cuMemFree and cuMemFreeAsync. Returns null if the address is not memory in use.
  std::shared_ptr<Allocation> Free(CUdeviceptr address);

  // The bytes in use on a device, now and at most.
  struct Use {
    uint64_t now = 0;
    uint64_t high = 0;
  };
  Use used(int device) const;
  void ResetHigh(int device);

 private:
  void Take(const std::shared_ptr<Allocation>& allocation);
  void Release(const std::shared_ptr<Allocation>& allocation);

  std::atomic<bool> any_{false};
  std::unordered_map<CUdeviceptr, std::weak_ptr<Allocation>> known_;
  size_t sweep_at_ = 64;  // forgets memory that is gone when `known_` has so many entries
  std::unordered_map<CUdeviceptr, std::shared_ptr<Allocation>> in_use_;
  std::map<int, Use> uses_;  // by device
};

}  // namespace rgpu::graph
