#include "rgpu_server/executor/points.h"

namespace rgpu::exec {

CUresult EventPool::Take(unsigned int flags, CUevent* event) {
  {
    std::lock_guard lock(mutex_);
    auto& free = free_[flags];
    if (!free.empty()) {
      *event = free.back();
      free.pop_back();
      return CUDA_SUCCESS;
    }
  }
  return driver_->cuEventCreate(event, flags);
}

void EventPool::Give(unsigned int flags, CUevent event) {
  {
    std::lock_guard lock(mutex_);
    if (abandoned_) return;
    auto& free = free_[flags];
    if (free.size() < kKept) {
      free.push_back(event);
      return;
    }
  }
  driver_->cuEventDestroy_v2(event);
}

void EventPool::Abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  free_.clear();
}

}  // namespace rgpu::exec
