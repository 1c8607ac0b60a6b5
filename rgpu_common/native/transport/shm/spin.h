// Decides how long a thread spins (polls a ring in a loop) before it sleeps.
#pragma once

#include <atomic>
#include <cstdint>

namespace rgpu::transport {

// Learns from past waits whether spinning pays. Waking a sleeping thread takes microseconds on a
// bare machine, and tens of them on a virtual one. Spinning uses a processor that others may need.
// If the other end needs it, spinning never pays, however short the waits are. Any thread may call
// the functions; a race between two threads costs at most one step of learning.
class Spin {
 public:
  // `cpus` is the number of usable processors. With only one, the other end cannot run while this
  // end spins.
  explicit Spin(int cpus) : allowed_(cpus > 1) {}

  // How long to spin in the wait that begins now. 0: do not spin.
  uint64_t Budget();
  // The event came after `ns`, while this thread was spinning.
  void Found(uint64_t ns);
  // This thread spun for `budget_ns` and then slept. The whole wait took `ns`.
  void Slept(uint64_t ns, uint64_t budget_ns);
  void set_cpus(int cpus) { allowed_.store(cpus > 1, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kLeastNs = 1'000;
  static constexpr uint64_t kFirstNs = 10'000;
  static constexpr uint64_t kMostNs = 50'000;
  // A wait shorter than this consisted mostly of falling asleep and waking up.
  static constexpr uint64_t kShortWaitNs = 100'000;
  static constexpr uint32_t kFirstRest = 32;
  static constexpr uint32_t kLongestRest = 2048;

  std::atomic<bool> allowed_;
  std::atomic<uint64_t> budget_ns_{kFirstNs};
  std::atomic<uint32_t> rest_{0};  // number of coming waits without spinning
  std::atomic<uint32_t> next_rest_{kFirstRest};
};

// One step of spinning: pauses the processor or, once a thread has spun for long (`spent_ns`),
// yields it to other threads.
void SpinStep(uint64_t spent_ns);

}  // namespace rgpu::transport
