// Memory credit: memory that the worker has granted ahead, from which the client cuts allocations
// by itself. The worker gives them memory when it reads the command (rgpuMemBack).
//
// The table holds no effects. It decides which addresses an allocation gets, which may be used
// again, and how much credit to ask for. All totals only grow, and each message says a total, so
// that it does not matter on which lane a message comes, or whether one is lost.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace rgpu::shim {

class MemoryCredit {
 public:
  // The addresses from which allocations are cut. Each takes whole granules and ends at the last
  // one. `gap` bytes behind it stay unused, so that a kernel that runs past its end faults.
  struct Window {
    uint64_t base = 0;
    uint64_t bytes = 0;
    uint64_t granule = 0;
    uint64_t gap = 0;
  };
  // What the client says when it asks for an allocation.
  struct Ask {
    uint64_t returned = 0;  // credit given back so far, all of it
    uint64_t wish = 0;      // as much credit it wants to have
  };

  // The most credit that this client asks for.
  void SetMost(uint64_t bytes) { most_ = bytes; }
  // False: the window cannot be used. It never changes once there is one.
  bool Open(const Window& window);

  // Cuts an allocation. Nothing: there is not enough credit.
  std::optional<uint64_t> Cut(uint64_t bytes);
  // Command `seq` frees this allocation. Its addresses are used again when the worker has said that
  // the command is carried out; its memory when the worker grants it again.
  void Free(uint64_t base, uint64_t bytes, uint64_t seq);
  // The worker has destroyed the context of this allocation, so nothing uses the addresses.
  void Drop(uint64_t base, uint64_t bytes);
  // The worker has granted `granted` bytes in all, and carried out all frees up to `freed`.
  void Granted(uint64_t granted);
  void Freed(uint64_t freed);

  // For an allocation of `bytes` that could not be cut. Gives all credit back; the answer says what
  // is granted instead.
  Ask AskFor(uint64_t bytes);
  // Gives all credit back, and begins anew. Returns how much was given back so far; nothing if
  // there was none.
  std::optional<uint64_t> GiveBack();

  // True if there is credit, or if there will be when frees are carried out.
  bool active() const;
  // Changes with every allocation and every free.
  uint64_t uses() const;

 private:
  struct Span {
    uint64_t base;
    uint64_t bytes;
  };
  Span SpanOf(uint64_t base, uint64_t bytes) const;
  uint64_t Rounded(uint64_t bytes) const;
  void TakeAll();
  void GiveSpan(const Span& span);
  std::optional<uint64_t> TakeSpan(uint64_t bytes);

  mutable std::mutex mutex_;
  Window window_;
  std::map<uint64_t, uint64_t> free_;      // addresses of the window that are not used
  std::multimap<uint64_t, Span> pending_;  // frees under way, by command
  uint64_t cursor_ = 0;
  uint64_t most_ = 0;
  uint64_t credit_ = 0;
  uint64_t granted_ = 0;
  uint64_t returned_ = 0;
  uint64_t freed_ = 0;
  uint64_t target_ = 0;
  uint64_t live_ = 0;
  uint64_t uses_ = 0;
  bool asked_ = false;  // for an allocation that could have been cut, since the last GiveBack
};

}  // namespace rgpu::shim
