#include "rgpu_common/native/graph/memory.h"

#include <algorithm>

namespace rgpu::graph {

void Memory::Know(const std::shared_ptr<Allocation>& allocation) {
  if (known_.size() >= sweep_at_) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * known_.size() + 64;
  }
  known_[allocation->address] = allocation;
  any_.store(true, std::memory_order_release);
}

bool Memory::Knows(CUdeviceptr address) const {
  const auto it = known_.find(address);
  return it != known_.end() && !it->second.expired();
}

void Memory::Take(const std::shared_ptr<Allocation>& allocation) {
  in_use_[allocation->address] = allocation;
  Use& use = uses_[allocation->device];
  use.now += allocation->bytes;
  use.high = std::max(use.high, use.now);
}

void Memory::Release(const std::shared_ptr<Allocation>& allocation) {
  if (in_use_.erase(allocation->address) != 0) uses_[allocation->device].now -= allocation->bytes;
}

Memory::Use Memory::used(int device) const {
  const auto it = uses_.find(device);
  return it == uses_.end() ? Use{} : it->second;
}

void Memory::ResetHigh(int device) {
  const auto it = uses_.find(device);
  if (it != uses_.end()) it->second.high = it->second.now;
}

CUresult Memory::Launch(const Instance& instance, Undo* undo) {
  const bool frees_first = (instance.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0;
  for (const auto& entry : instance.nodes) {
    const auto* alloc = std::get_if<AllocParams>(&entry.node->params);
    if (alloc == nullptr) continue;
    const auto& allocation = alloc->allocation;
    if (!in_use_.contains(allocation->address)) {
      undo->taken.push_back(allocation);
    } else if (!frees_first) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  const auto taken = [&](CUdeviceptr address) {
    return std::any_of(undo->taken.begin(), undo->taken.end(),
                       [address](const auto& a) { return a->address == address; });
  };
  for (const auto& entry : instance.nodes) {
    const auto* free = std::get_if<FreeParams>(&entry.node->params);
    if (free != nullptr && !in_use_.contains(free->address) && !taken(free->address))
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (const auto& allocation : undo->taken) Take(allocation);
  for (const auto& entry : instance.nodes) {
    const auto* free = std::get_if<FreeParams>(&entry.node->params);
    if (free == nullptr) continue;
    const auto it = in_use_.find(free->address);
    if (it == in_use_.end()) continue;
    undo->freed.push_back(it->second);
    Release(undo->freed.back());
  }
  return CUDA_SUCCESS;
}

void Memory::Revert(const Undo& undo) {
  for (const auto& allocation : undo.freed) Take(allocation);
  for (const auto& allocation : undo.taken) Release(allocation);
}

std::shared_ptr<Allocation> Memory::Free(CUdeviceptr address) {
  const auto it = in_use_.find(address);
  if (it == in_use_.end()) return nullptr;
  std::shared_ptr<Allocation> allocation = it->second;
  Release(allocation);
  return allocation;
}

}  // namespace rgpu::graph
