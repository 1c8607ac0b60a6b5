// Whether this process has memory that host and device use. Every call looks at this word, so that
// programs without such memory pay one load.
#pragma once

#include <atomic>
#include <cstdint>

namespace rgpu::shim {

enum PagedBits : uint32_t {
  kVisibleRanges = 1,   // managed or mapped memory, shared or tracked
  kTrackedRanges = 2,   // some of it is tracked page by page
  kUnsettledPages = 4,  // pages that the end of the next call drops
  kMirrors = 8,         // registered memory with a device address
};

// Four bits for each session.
inline constexpr uint32_t kPagedBitsOfAll = 0x11111111;
inline std::atomic<uint32_t> g_paged_bits{0};

// True if a session has one of the bits.
inline bool PagedHas(uint32_t bits) {
  return (g_paged_bits.load(std::memory_order_relaxed) & (bits * kPagedBitsOfAll)) != 0;
}
inline bool PagedHas(unsigned session, uint32_t bits) {
  return (g_paged_bits.load(std::memory_order_relaxed) & (bits << (4 * session))) != 0;
}
inline void SetPagedBit(unsigned session, uint32_t bits, bool on) {
  const uint32_t own = bits << (4 * session);
  if (on) {
    g_paged_bits.fetch_or(own);
  } else {
    g_paged_bits.fetch_and(~own);
  }
}

}  // namespace rgpu::shim
