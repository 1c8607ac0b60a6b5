#include "rgpu_emu/device/exec/warp_ops.h"

#include <algorithm>
#include <bit>

namespace rgpu::emu {
namespace {

template <typename F>
inline void ForLanes(uint32_t group, F&& f) {
  for (uint32_t rest = group; rest != 0; rest &= rest - 1)
    f(static_cast<uint32_t>(std::countr_zero(rest)));
}

void SetAll(uint32_t group, ThreadState* lanes, uint64_t result) {
  ForLanes(group, [&](uint32_t lane) { lanes[lane].result = result; });
}

// A lane that reads a lane outside the group (undefined in PTX) gets its own value.
void Shuffle(uint32_t op, uint32_t group, ThreadState* lanes) {
  ForLanes(group, [&](uint32_t lane) {
    const ShuffleSource source = FindShuffleSource(op, lane, lanes[lane].a, lanes[lane].b);
    const uint32_t from = ((group >> source.lane) & 1) != 0 ? source.lane : lane;
    const uint64_t value = lanes[from].value & 0xffffffff;
    lanes[lane].result = value | static_cast<uint64_t>(source.in_range) << 32;
  });
}

uint32_t Ballot(uint32_t group, const ThreadState* lanes) {
  uint32_t ballot = 0;
  ForLanes(group,
           [&](uint32_t lane) { ballot |= static_cast<uint32_t>(lanes[lane].value != 0) << lane; });
  return ballot;
}

void Vote(uint32_t op, uint32_t group, ThreadState* lanes) {
  const uint32_t ballot = Ballot(group, lanes);
  switch (op) {
    case kOpVoteAll:
      return SetAll(group, lanes, ballot == group);
    case kOpVoteAny:
      return SetAll(group, lanes, ballot != 0);
    case kOpVoteUni:
      return SetAll(group, lanes, ballot == group || ballot == 0);
    default:
      return SetAll(group, lanes, ballot);
  }
}

void Match(uint32_t op, uint32_t group, ThreadState* lanes) {
  const auto value = [&](uint32_t lane) {
    return lanes[lane].a == 64 ? lanes[lane].value : lanes[lane].value & 0xffffffff;
  };
  if (op == kOpMatchAll) {
    const uint64_t first = value(static_cast<uint32_t>(std::countr_zero(group)));
    bool same = true;
    ForLanes(group, [&](uint32_t lane) { same = same && value(lane) == first; });
    return SetAll(group, lanes, same ? group | uint64_t{1} << 32 : 0);
  }
  ForLanes(group, [&](uint32_t lane) {
    uint32_t equal = 0;
    ForLanes(group, [&](uint32_t other) {
      equal |= static_cast<uint32_t>(value(other) == value(lane)) << other;
    });
    lanes[lane].result = equal;
  });
}

uint32_t Combine(uint32_t op, uint32_t a, uint32_t b) {
  const auto sa = static_cast<int32_t>(a);
  const auto sb = static_cast<int32_t>(b);
  switch (op) {
    case kOpReduxAdd:
      return a + b;
    case kOpReduxMinS:
      return static_cast<uint32_t>(std::min(sa, sb));
    case kOpReduxMaxS:
      return static_cast<uint32_t>(std::max(sa, sb));
    case kOpReduxMinU:
      return std::min(a, b);
    case kOpReduxMaxU:
      return std::max(a, b);
    case kOpReduxAnd:
      return a & b;
    case kOpReduxOr:
      return a | b;
    default:
      return a ^ b;
  }
}

void Redux(uint32_t op, uint32_t group, ThreadState* lanes) {
  const auto first = static_cast<uint32_t>(std::countr_zero(group));
  auto result = static_cast<uint32_t>(lanes[first].value);
  ForLanes(group & ~(1u << first), [&](uint32_t lane) {
    result = Combine(op, result, static_cast<uint32_t>(lanes[lane].value));
  });
  SetAll(group, lanes, result);
}

}  // namespace

ShuffleSource FindShuffleSource(uint32_t op, uint32_t lane, uint32_t b, uint32_t c) {
  const uint32_t by = b & 31;
  const uint32_t clamp = c & 31;
  const uint32_t segment = (c >> 8) & 31;
  const uint32_t max_lane = (lane & segment) | (clamp & ~segment);
  const uint32_t min_lane = lane & segment;
  uint32_t from = lane;
  bool in_range = true;
  switch (op) {
    case kOpShflUp:
      in_range = static_cast<int32_t>(lane - by) >= static_cast<int32_t>(max_lane);
      from = lane - by;
      break;
    case kOpShflDown:
      from = lane + by;
      in_range = from <= max_lane;
      break;
    case kOpShflBfly:
      from = lane ^ by;
      in_range = from <= max_lane;
      break;
    default:
      from = min_lane | (by & ~segment);
      in_range = from <= max_lane;
      break;
  }
  return {in_range ? from & 31 : lane, in_range};
}

void ResolveWarpOp(uint32_t op, uint32_t group, ThreadState* lanes) {
  if (op <= kOpShflBfly) return Shuffle(op, group, lanes);
  if (op <= kOpVoteBallot) return Vote(op, group, lanes);
  if (op <= kOpMatchAll) return Match(op, group, lanes);
  if (op <= kOpReduxXor) return Redux(op, group, lanes);
  SetAll(group, lanes, 0);  // kOpWarpSync
}

}  // namespace rgpu::emu
