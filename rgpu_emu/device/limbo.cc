#include "rgpu_emu/device/limbo.h"

#include <utility>

namespace rgpu::emu {

void Limbo::Retire(AllocationRef allocation, Fences after) {
  if (AllDone(after)) {
    arena_->Release(allocation);
    return;
  }
  const std::lock_guard lock(mutex_);
  entries_.push_back({std::move(allocation), std::move(after)});
}

void Limbo::Reap() {
  std::deque<Entry> done;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = entries_.begin(); it != entries_.end();) {
      if (AllDone(it->after)) {
        done.push_back(std::move(*it));
        it = entries_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const Entry& entry : done) arena_->Release(entry.allocation);
}

bool Limbo::WaitOldest() {
  Fences oldest;
  {
    const std::lock_guard lock(mutex_);
    if (entries_.empty()) return false;
    oldest = entries_.front().after;
  }
  WaitAll(oldest);
  Reap();
  return true;
}

}  // namespace rgpu::emu
