// Ranges whose pages an export moves, or has moved, to a file of their own. While a part of a range
// is moved it cannot be written, so a kernel that writes there faults. The fault handler asks here,
// and lets the kernel try again.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rgpu::emu {

class MovedRanges {
 public:
  static constexpr size_t kMost = 1024;

  // Called with the arena's lock for exports. False: there are too many ranges.
  bool Add(uint64_t base, uint64_t bytes);
  void Remove(uint64_t base);
  // Callable in a signal handler. A range stays until its memory is freed, because a fault may be
  // handled after the move is over.
  bool Hold(uint64_t address) const;

 private:
  struct Range {
    std::atomic<uint64_t> base{0};  // 0: free
    std::atomic<uint64_t> bytes{0};
  };
  std::array<Range, kMost> ranges_;
};

MovedRanges& Moved();

}  // namespace rgpu::emu
