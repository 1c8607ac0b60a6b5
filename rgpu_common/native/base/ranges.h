// Maps from the first address of a range to what is there. Ranges are not empty, do not overlap,
// and end inside the address space. `bytes_of(value)` gives the length of a range.
#pragma once

#include <cstdint>
#include <iterator>
#include <utility>

namespace rgpu::base {

// The range that holds `address`; else the end of the map.
template <typename Map, typename BytesOf>
auto RangeAt(Map& ranges, uint64_t address, BytesOf bytes_of) {
  const auto next = ranges.upper_bound(address);
  if (next == ranges.begin()) return ranges.end();
  const auto it = std::prev(next);
  return address - it->first < bytes_of(it->second) ? it : ranges.end();
}

// The range that holds all of [address, address + bytes); else the end of the map.
template <typename Map, typename BytesOf>
auto RangeHolding(Map& ranges, uint64_t address, uint64_t bytes, BytesOf bytes_of) {
  const auto it = RangeAt(ranges, address, bytes_of);
  if (it == ranges.end()) return it;
  return bytes <= bytes_of(it->second) - (address - it->first) ? it : ranges.end();
}

// True if a range has a byte in [address, address + bytes).
template <typename Map, typename BytesOf>
bool AnyRangeIn(Map& ranges, uint64_t address, uint64_t bytes, BytesOf bytes_of) {
  const auto next = ranges.lower_bound(address);
  if (next != ranges.end() && next->first - address < bytes) return true;
  return RangeAt(ranges, address, bytes_of) != ranges.end();
}

// The ranges that together are exactly [base, base + bytes), and that all pass `may`: the first,
// and the one behind the last. Both are the end of the map if there are none.
template <typename Map, typename BytesOf, typename May>
auto RangesTiling(Map& ranges, uint64_t base, uint64_t bytes, BytesOf bytes_of, May may) {
  const auto first = ranges.find(base);
  auto it = first;
  uint64_t at = base;
  while (it != ranges.end() && it->first == at && at - base < bytes && may(it->second)) {
    at += bytes_of(it->second);
    ++it;
  }
  if (bytes == 0 || at - base != bytes) return std::pair(ranges.end(), ranges.end());
  return std::pair(first, it);
}

}  // namespace rgpu::base
