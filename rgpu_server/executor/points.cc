#include "rgpu_server/executor/points.h"

#include <algorithm>

#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

bool Frontier::Settle() {
  std::erase_if(pending, [this](const auto& delivery) {
    if (delivery->done) sent = std::max(sent, delivery->sent);
    return delivery->done;
  });
  return pending.empty();
}

void Frontier::Merge(const Frontier& other) {
  Settle();
  sent = std::max(sent, other.sent);
  for (const auto& delivery : other.pending) {
    if (delivery->done) {
      sent = std::max(sent, delivery->sent);
    } else if (std::ranges::find(pending, delivery) == pending.end()) {
      pending.push_back(delivery);
    }
  }
}

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

bool EventPool::abandoned() {
  std::lock_guard lock(mutex_);
  return abandoned_;
}

void EventPool::Abandon() {
  std::lock_guard lock(mutex_);
  abandoned_ = true;
  free_.clear();
}

}  // namespace rgpu::exec
