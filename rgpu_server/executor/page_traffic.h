// The commands by which a client reads and writes pages of memory that its program uses in place
// (rgpuPageStreamCreate, ADR 0019).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "gen/opcodes.gen.h"
#include "rgpu_server/executor/command.h"
#include "rgpu_server/executor/streams.h"

namespace rgpu::exec {

class Executor;

// What a session may move in page streams without the lease's token: so much at once, and as much
// again in a second. What is used beyond that waits for the token, or for time to pass.
class PageAllowance {
 public:
  static constexpr uint64_t kBytes = 16U << 20;

  // With the executor's lock.
  void Use(uint64_t bytes, uint64_t now_ns) {
    Pass(now_ns);
    used_.store(used() + bytes, std::memory_order_relaxed);
  }
  void Pass(uint64_t now_ns) {
    const uint64_t ns = now_ns - std::min(since_ns_, now_ns);
    since_ns_ = now_ns;
    const uint64_t regained = ns >= kSecondNs ? kBytes : ns * kBytes / kSecondNs;
    used_.store(used() - std::min(used(), regained), std::memory_order_relaxed);
  }
  void Renew() { used_.store(0, std::memory_order_relaxed); }
  // Callable without the lock.
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  bool spent() const { return used() > kBytes; }

 private:
  static constexpr uint64_t kSecondNs = 1'000'000'000;

  std::atomic<uint64_t> used_{0};
  uint64_t since_ns_ = 0;
};

// True if the command moves at most a piece in a page stream, waits for one, or creates one. Such
// commands pass the gate and the commands that are held: a host function of the program may need
// the page, and the held work may wait for that function. Their time is charged like that of work
// which the worker does itself (Gate::Spent).
bool IsPageTraffic(Executor& executor, const OpcodeInfo& info, const Command& command);

// The session has used up its allowance, and the gate does not admit as much now: nothing more of
// the client's may be read until one of the two changes. With the lock.
bool PagesMustWait(Executor& executor);

// The estimate by which the gate counts `bytes` of a copy of `all` bytes in the stream as work of
// the device; null for a piece in a page stream. There the predicted time is charged at once.
const std::shared_ptr<Estimate>* CountedCopy(Executor& executor, const Stream& stream,
                                             const std::shared_ptr<Estimate>& kind, uint64_t bytes,
                                             uint64_t all);

}  // namespace rgpu::exec
