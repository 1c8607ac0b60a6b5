// How long to look for what another process does before going to sleep.
#pragma once

#include <atomic>
#include <cstdint>

namespace rgpu::transport {

// Learns from the waits whether looking pays.  Waking a thread that sleeps takes microseconds on a
// bare machine and tens of them on a virtual one; looking costs a processor that others may need,
// the other end among them: where that is so it never pays, however short the waits are.
// From any thread; a race between two costs at most one step of learning.
class Spin {
 public:
  // `cpus`: what this process may use; with one, the other end cannot do anything meanwhile.
  explicit Spin(int cpus) : allowed_(cpus > 1) {}

  // How long to look in the wait that begins; 0: not at all.
  uint64_t Budget();
  // It came after `ns`, while this thread was looking.
  void Found(uint64_t ns);
  // After a look of `budget_ns` this thread slept; all in all it took `ns`.
  void Slept(uint64_t ns, uint64_t budget_ns);
  void set_cpus(int cpus) { allowed_.store(cpus > 1, std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kLeastNs = 1'000;
  static constexpr uint64_t kFirstNs = 10'000;
  static constexpr uint64_t kMostNs = 50'000;
  // A wait that was over so soon was mostly the way to sleep and back.
  static constexpr uint64_t kShortWaitNs = 100'000;
  static constexpr uint32_t kFirstRest = 32;
  static constexpr uint32_t kLongestRest = 2048;

  std::atomic<bool> allowed_;
  std::atomic<uint64_t> budget_ns_{kFirstNs};
  std::atomic<uint32_t> rest_{0};  // waits to come without a look
  std::atomic<uint32_t> next_rest_{kFirstRest};
};

// One step of looking: lets the processor rest, and other threads run once `spent_ns` have gone.
void SpinStep(uint64_t spent_ns);

}  // namespace rgpu::transport
