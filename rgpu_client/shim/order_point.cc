#include "rgpu_client/shim/order_point.h"

#include "rgpu_client/shim/control_lane.h"

namespace rgpu::shim {

void OrderPoint::Reach() {
  std::vector<std::pair<ControlLane*, uint64_t>> waiting;
  {
    const std::lock_guard lock(mutex_);
    reached_ = true;
    waiting.swap(waiting_);
  }
  for (const auto& [control, callback] : waiting) control->SendCallbackDone(callback);
}

void OrderPoint::Wait(ControlLane* control, uint64_t callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!reached_) {
      waiting_.emplace_back(control, callback);
      return;
    }
  }
  control->SendCallbackDone(callback);
}

bool OrderPoint::reached() const {
  const std::lock_guard lock(mutex_);
  return reached_;
}

}  // namespace rgpu::shim
