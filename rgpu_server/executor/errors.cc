#include "rgpu_server/executor/errors.h"

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

void DeferredErrors::Keep(uint32_t context, uint32_t thread, CUresult error) {
  if (slots_.size() >= kMaxKeptErrors) thread = 0;
  if (slots_.size() >= 2 * kMaxKeptErrors) return;
  slots_.try_emplace({context, thread}, Slot{error, order_++});
}

CUresult DeferredErrors::Take(uint32_t context, uint32_t thread) {
  if (slots_.empty()) return CUDA_SUCCESS;
  auto it = slots_.find({context, thread});
  if (it == slots_.end()) it = slots_.find({context, 0});
  if (it == slots_.end()) return CUDA_SUCCESS;
  const CUresult error = it->second.error;
  slots_.erase(it);
  return error;
}

CUresult DeferredErrors::TakeAll(uint32_t context) {
  Slot oldest{CUDA_SUCCESS, UINT64_MAX};
  const auto first = slots_.lower_bound({context, 0});
  auto it = first;
  for (; it != slots_.end() && it->first.first == context; ++it) {
    if (it->second.order < oldest.order) oldest = it->second;
  }
  slots_.erase(first, it);
  return oldest.error;
}

void DeferredErrors::ThreadGone(uint32_t thread) {
  if (thread == 0) return;
  std::vector<std::pair<uint32_t, CUresult>> moved;
  std::erase_if(slots_, [&](const auto& entry) {
    if (entry.first.second != thread) return false;
    moved.emplace_back(entry.first.first, entry.second.error);
    return true;
  });
  for (const auto& [context, error] : moved) Keep(context, 0, error);
}

void DeferredErrors::DropContext(uint32_t context) {
  std::erase_if(slots_, [&](const auto& entry) { return entry.first.first == context; });
}

}  // namespace rgpu::exec
