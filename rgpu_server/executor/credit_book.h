// The worker's account of the memory credit of its client: what was granted, used and returned, and
// which addresses of the window have memory. No effects: memory_credit.h has them.
//
// A client may only use what this book says that it has. The three totals only grow, and each is
// said as a total, so a message may be lost or come late and the next one mends it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace rgpu::exec {

class CreditBook {
 public:
  struct Window {
    uint64_t base = 0;
    uint64_t bytes = 0;
  };
  static constexpr uint64_t kGranule = 4096;
  // The client leaves so much behind each allocation, so that a kernel that runs past it faults.
  static constexpr uint64_t kGap = kGranule;
  // Each has a mapping of its own in the worker, of which a process has few.
  static constexpr size_t kMostBacked = 4096;

  void Open(Window window) { window_ = window; }
  const Window& window() const { return window_; }
  uint64_t granted() const { return granted_; }
  // What the client has and has not used, as far as this worker has read its commands.
  uint64_t uncut() const { return granted_ - cut_ - returned_; }

  void Grant(uint64_t bytes) { granted_ += bytes; }
  // The client has returned `total` bytes so far. Returns how many of them are new. More than the
  // client has are not accepted: then nothing is.
  uint64_t Return(uint64_t total);
  // The granules of [base, base + bytes) get memory. Returns their bytes; 0: they do not lie in the
  // window, meet others, or the client has not so much.
  uint64_t Cut(uint64_t base, uint64_t bytes);
  // The granules of an allocation have no memory any more.
  void Drop(uint64_t base);

  // Command `seq` frees backed memory. Commands come in order.
  void Freeing(uint64_t seq) { frees_.push_back({seq, false}); }
  void Freed(uint64_t seq);
  // Every free up to this command is carried out.
  uint64_t freed() const { return freed_; }

 private:
  struct Free {
    uint64_t seq;
    bool done;
  };

  Window window_;
  uint64_t granted_ = 0;
  uint64_t cut_ = 0;
  uint64_t returned_ = 0;
  uint64_t freed_ = 0;
  std::map<uint64_t, uint64_t> backed_;  // granules with memory: first address -> bytes
  std::deque<Free> frees_;
};

}  // namespace rgpu::exec
