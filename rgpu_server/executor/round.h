#pragma once

#include <cstdint>

namespace rgpu::exec {

// Rounds up to a multiple of `granule`. Returns false if the result overflows.
inline bool RoundUp(uint64_t bytes, uint64_t granule, uint64_t* rounded) {
  if (__builtin_add_overflow(bytes, granule - 1, rounded)) return false;
  *rounded -= *rounded % granule;
  return true;
}

}  // namespace rgpu::exec
