#include "rgpu_common/native/probe/watchdog.h"

#include <algorithm>
#include <chrono>

#include "rgpu_common/native/base/clock.h"

namespace rgpu::probe {
namespace {

uint64_t In(int ms) { return base::NowNs() + static_cast<uint64_t>(std::max(ms, 0)) * 1'000'000U; }

}  // namespace

Watchdog::Watchdog(transport::Connection* connection, int ms)
    : connection_(connection), at_ns_(In(ms)), thread_([this] { Watch(); }) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void Watchdog::Set(int ms) {
  {
    const std::lock_guard lock(mutex_);
    at_ns_ = In(ms);
  }
  changed_.notify_one();
}

void Watchdog::Watch() {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const uint64_t now = base::NowNs();
    if (now >= at_ns_) {
      bitten_ = true;
      connection_->Shutdown();
      return;
    }
    changed_.wait_for(lock, std::chrono::nanoseconds(at_ns_ - now));
  }
}

}  // namespace rgpu::probe
