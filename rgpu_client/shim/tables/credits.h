// The credits of one stream. They bound how many launches and copies, and how many bytes, the
// stream may have outstanding.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

namespace rgpu::shim {

class Credits {
 public:
  struct Limits {
    uint32_t commands = 512;
    uint64_t bytes = 64U << 20;
  };

  // True if a command of `bytes` may be sent now. A command larger than the whole credit is sent
  // when nothing else is outstanding. Threads that call this at the same time may each exceed the
  // limit by one command.
  bool Has(uint64_t bytes, const Limits& limits) const {
    const uint64_t issued = issued_.load(std::memory_order_acquire);
    const uint64_t done = completed_.load(std::memory_order_acquire);
    if (issued <= done) return true;
    if (issued - done >= limits.commands) return false;
    const uint64_t total = total_bytes_.load(std::memory_order_relaxed);
    return total - cumulative_[done % ring_] + bytes <= limits.bytes;
  }

  // Counts a command as issued. With the channel's append lock held.
  void Take(uint64_t bytes, const Limits& limits) {
    if (cumulative_ == nullptr) {
      ring_ = uint64_t{2} * std::max(limits.commands, 64U);
      cumulative_ = std::make_unique<uint64_t[]>(ring_);
    }
    const uint64_t total = total_bytes_.load(std::memory_order_relaxed) + bytes;
    const uint64_t next = issued_.load(std::memory_order_relaxed) + 1;
    total_bytes_.store(total, std::memory_order_relaxed);
    cumulative_[next % ring_] = total;
    issued_.store(next, std::memory_order_release);
  }

  // Called for a CREDIT notice: `completed` commands of this stream are complete so far.
  void Return(uint64_t completed) {
    if (completed > completed_.load(std::memory_order_relaxed)) {
      completed_.store(completed, std::memory_order_release);
    }
  }
  uint64_t completed() const { return completed_.load(std::memory_order_acquire); }
  uint64_t issued() const { return issued_.load(std::memory_order_acquire); }

 private:
  std::atomic<uint64_t> issued_{0};
  std::atomic<uint64_t> completed_{0};
  std::atomic<uint64_t> total_bytes_{0};
  // cumulative_[n % ring_] is the number of bytes of the first n commands. The ring is twice as
  // long as the limit, so entries of outstanding commands are never overwritten.
  std::unique_ptr<uint64_t[]> cumulative_;
  uint64_t ring_ = 0;
};

}  // namespace rgpu::shim
