#include "rgpu_emu/device/exec/half_float.h"

#include <bit>

namespace rgpu::emu {
namespace {

// Rounds a double to a 16-bit format with `kMantissa` stored mantissa bits and 15 - kMantissa
// exponent bits.
template <int kMantissa>
uint16_t Narrow(double value) {
  constexpr int kExponentBits = 15 - kMantissa;
  constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr uint64_t kInfinity = uint64_t{(1 << kExponentBits) - 1} << kMantissa;
  const auto bits = std::bit_cast<uint64_t>(value);
  const uint64_t sign = (bits >> 63) << 15;
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  if (exponent == 0x7ff) {
    const uint64_t quiet = uint64_t{1} << (kMantissa - 1);
    const uint64_t payload = fraction == 0 ? 0 : quiet | (fraction >> (52 - kMantissa));
    return static_cast<uint16_t>(sign | kInfinity | payload);
  }
  const int scaled = exponent - 1023 + kBias;
  if (exponent == 0 || scaled < -kMantissa)
    return static_cast<uint16_t>(sign);  // below half of the smallest number
  const uint64_t significand = fraction | (uint64_t{1} << 52);
  const int drop = 52 - kMantissa + (scaled < 1 ? 1 - scaled : 0);
  uint64_t result = (significand >> drop);
  if (scaled >= 1) result += static_cast<uint64_t>(scaled - 1) << kMantissa;
  const uint64_t rest = significand & ((uint64_t{1} << drop) - 1);
  const uint64_t half = uint64_t{1} << (drop - 1);
  if (rest > half || (rest == half && (result & 1) != 0)) ++result;
  return static_cast<uint16_t>(sign | (result >= kInfinity ? kInfinity : result));
}

}  // namespace

uint16_t HalfFromDouble(double value) { return Narrow<10>(value); }
uint16_t HalfFromFloat(float value) { return Narrow<10>(static_cast<double>(value)); }
uint16_t BfloatFromDouble(double value) { return Narrow<7>(value); }
uint16_t BfloatFromFloat(float value) { return Narrow<7>(static_cast<double>(value)); }

float FloatFromHalf(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t fraction = bits & 0x3ff;
  if (exponent == 0x1f) {
    const uint32_t quiet = fraction == 0 ? 0 : 0x400000;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (fraction << 13));
  }
  if (exponent == 0) {
    if (fraction == 0) return std::bit_cast<float>(sign);
    const int shift = std::countl_zero(fraction) - 21;
    fraction = (fraction << shift) & 0x3ff;
    exponent = static_cast<uint32_t>(1 - shift);
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

}  // namespace rgpu::emu
