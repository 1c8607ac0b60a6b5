// Warp operations as pure functions over the threads that came to one.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

inline bool IsBarrierOp(uint32_t op) { return op >= kOpBarSync && op <= kOpBarRedOr; }
inline bool IsWarpOp(uint32_t op) { return op >= kOpShflIdx && op <= kOpWarpSync; }

// Writes the result of every lane of `group`, whose threads (`lanes[0..31]`) all wait at the
// operation `op`.
void ResolveWarpOp(uint32_t op, uint32_t group, ThreadState* lanes);

// Lane that `lane` reads in a shuffle and whether it lies in range, as the PTX manual computes
// them.
struct ShuffleSource {
  uint32_t lane;
  bool in_range;
};
ShuffleSource FindShuffleSource(uint32_t op, uint32_t lane, uint32_t b, uint32_t c);

}  // namespace rgpu::emu
