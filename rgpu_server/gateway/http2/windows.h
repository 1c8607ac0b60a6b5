// A memory budget for bytes that clients send and the daemon has not read yet.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

namespace rgpu::gateway::http2 {

// Shares `total` bytes out among calls, beyond the window that every stream has.
class Windows {
 public:
  static constexpr int64_t kTotalBytes = 512LL << 20;

  explicit Windows(int64_t total) : left_(total) {}

  // Returns how many bytes a call gets, perhaps 0. It is at most 1 / kPart of the free bytes, so
  // that later calls get some, too.
  int32_t Take(int32_t wanted) {
    const std::lock_guard lock(mutex_);
    const int64_t granted = std::clamp<int64_t>(left_ / kPart, 0, wanted);
    left_ -= granted;
    return static_cast<int32_t>(granted);
  }

  // A call that got this many bytes has ended.
  void Give(int32_t count) {
    const std::lock_guard lock(mutex_);
    left_ += count;
  }

 private:
  static constexpr int64_t kPart = 64;

  std::mutex mutex_;
  int64_t left_;
};

}  // namespace rgpu::gateway::http2
