// Warp operations, as pure functions of the threads that take part.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

inline bool IsBarrierOp(uint32_t op) { return op >= kOpBarSync && op <= kOpBarRedOr; }
inline bool IsWarpOp(uint32_t op) {
  return (op >= kOpShflIdx && op <= kOpWarpSync) || op == kOpMatrix;
}

// Sets the result for each lane of `group`. All its threads (in `lanes[0..31]`) wait at the
// operation `op`.
void ResolveWarpOp(uint32_t op, uint32_t group, ThreadState* lanes);

// The lane that `lane` reads in a shuffle, and whether that lane is in range, as the PTX manual
// defines them.
struct ShuffleSource {
  uint32_t lane;
  bool in_range;
};
ShuffleSource FindShuffleSource(uint32_t op, uint32_t lane, uint32_t b, uint32_t c);

}  // namespace rgpu::emu
