#include <bit>
#include <cmath>
#include <limits>

#include "rgpu_emu/device/exec/half_float.h"
#include "rgpu_emu/device/exec/warp_ops.h"
#include "tests/native/testing.h"

namespace rgpu::emu {
namespace {

// What a half with these bits is, from the definition of the format.
double HalfValue(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign *
         (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(numbers, every_half_comes_back) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const double value = HalfValue(half);
    const float widened = FloatFromHalf(half);
    if (std::isnan(value)) {
      CHECK(std::isnan(widened));
      CHECK(std::isnan(FloatFromHalf(HalfFromFloat(widened))));
      continue;
    }
    CHECK_EQ(static_cast<double>(widened), value);
    CHECK_EQ(std::signbit(widened), std::signbit(value));
    CHECK_EQ(HalfFromFloat(widened), half);
    CHECK_EQ(HalfFromDouble(value), half);
  }
}

// Between two neighbours the nearer one, at the middle the even one; a double is rounded once.
TEST(numbers, halves_round_to_nearest_even) {
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const double middle = (HalfValue(low) + HalfValue(high)) / 2;
    CHECK_EQ(HalfFromDouble(middle), (bits & 1) != 0 ? high : low);
    CHECK_EQ(HalfFromDouble(std::nextafter(middle, 0)), low);
    CHECK_EQ(HalfFromDouble(std::nextafter(middle, 1e9)), high);
  }
  CHECK_EQ(HalfFromFloat(65519.0f), 0x7bff);
  CHECK_EQ(HalfFromFloat(65520.0f), 0x7c00);
  CHECK_EQ(HalfFromDouble(-1e300), 0xfc00);
  CHECK_EQ(HalfFromDouble(5e-324), 0);
}

TEST(numbers, bfloats_are_the_upper_half_of_floats) {
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    const float value = std::bit_cast<float>(upper << 16);
    if (std::isnan(value)) continue;
    CHECK_EQ(BfloatFromFloat(value), upper);
    CHECK_EQ(BfloatFromDouble(static_cast<double>(value)), upper);
  }
  CHECK_EQ(BfloatFromFloat(std::bit_cast<float>(0x3f808000u)),
           0x3f80);  // the middle goes to the even one
  CHECK_EQ(BfloatFromFloat(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  CHECK_EQ(BfloatFromFloat(std::bit_cast<float>(0x3f808001u)), 0x3f81);
}

uint32_t ShuffleOnce(uint32_t op, uint32_t lane, uint32_t b, uint32_t c, bool* in_range) {
  const ShuffleSource source = FindShuffleSource(op, lane, b, c);
  *in_range = source.in_range;
  return source.lane;
}

TEST(numbers, shuffle_sources) {
  bool in_range = false;
  CHECK_EQ(ShuffleOnce(kOpShflUp, 3, 1, 0, &in_range), 2u);
  CHECK(in_range);
  CHECK_EQ(ShuffleOnce(kOpShflUp, 0, 1, 0, &in_range), 0u);
  CHECK(!in_range);
  CHECK_EQ(ShuffleOnce(kOpShflDown, 31, 1, 31, &in_range), 31u);
  CHECK(!in_range);
  CHECK_EQ(ShuffleOnce(kOpShflDown, 4, 16, 31, &in_range), 20u);
  CHECK(in_range);
  CHECK_EQ(ShuffleOnce(kOpShflBfly, 5, 16, 31, &in_range), 21u);
  CHECK_EQ(ShuffleOnce(kOpShflIdx, 9, 37, 31, &in_range), 5u);  // b is taken modulo 32
  // Segments of 8 lanes, as __shfl_*(..., width = 8) asks for them: c = (32 - 8) << 8 | 31 or | 0
  // for up.
  CHECK_EQ(ShuffleOnce(kOpShflIdx, 13, 2, 0x181f, &in_range), 10u);
  CHECK_EQ(ShuffleOnce(kOpShflDown, 14, 3, 0x181f, &in_range), 14u);
  CHECK(!in_range);
  CHECK_EQ(ShuffleOnce(kOpShflUp, 8, 1, 0x1800, &in_range), 8u);
  CHECK(!in_range);
}

uint64_t Resolve(uint32_t op, uint32_t group, uint32_t lane, uint64_t (*value)(uint32_t),
                 uint32_t a = 0) {
  ThreadState lanes[32] = {};
  for (uint32_t i = 0; i < 32; ++i) {
    lanes[i].value = value(i);
    lanes[i].a = a;
  }
  ResolveWarpOp(op, group, lanes);
  return lanes[lane].result;
}

TEST(numbers, warp_operations) {
  const auto lane = [](uint32_t i) -> uint64_t { return i; };
  const auto one = [](uint32_t) -> uint64_t { return 1; };
  CHECK_EQ(Resolve(kOpVoteAll, 0xf0, 4, lane), 1u);
  CHECK_EQ(Resolve(kOpVoteAll, 0x0f, 0, lane), 0u);
  CHECK_EQ(Resolve(kOpVoteAny, 0x01, 0, lane), 0u);
  CHECK_EQ(Resolve(kOpVoteUni, 0x03, 0, lane), 0u);
  CHECK_EQ(Resolve(kOpVoteBallot, 0x83, 7, lane), 0x82u);
  CHECK_EQ(Resolve(kOpMatchAll, 0xff, 3, one, 32), 0x1'0000'00ffu);
  CHECK_EQ(Resolve(kOpMatchAll, 0xff, 3, lane, 32), 0u);
  CHECK_EQ(Resolve(kOpReduxAdd, 0xffffffff, 9, lane), 496u);
  CHECK_EQ(
      Resolve(kOpReduxMinS, 3, 0, [](uint32_t i) -> uint64_t { return i == 0 ? 0xffffffff : 5; }),
      0xffffffffu);
  CHECK_EQ(
      Resolve(kOpReduxMinU, 3, 0, [](uint32_t i) -> uint64_t { return i == 0 ? 0xffffffff : 5; }),
      5u);
  CHECK_EQ(Resolve(kOpReduxXor, 0xf, 1, lane), 0u);
  // 64-bit values differ in their upper halves only.
  const auto wide = [](uint32_t i) -> uint64_t { return static_cast<uint64_t>(i / 2) << 32; };
  CHECK_EQ(Resolve(kOpMatchAny, 0xf, 2, wide, 64), 0xcu);
  CHECK_EQ(Resolve(kOpMatchAny, 0xf, 2, wide, 32), 0xfu);
  // A lane outside the group gives the reader its own value.
  CHECK_EQ(Resolve(kOpShflDown, 0x1, 0, lane, 1), 0u);
}

}  // namespace
}  // namespace rgpu::emu
