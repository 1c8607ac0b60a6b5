// Elements of matrices as numbers. Conversions from every type to double are exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "rgpu_emu/device/exec/half_float.h"
#include "rgpu_emu/device/kernel_abi.h"

namespace rgpu::emu {

inline double DoubleFromHalf(uint32_t bits) {
  // A half is its bits as a float, times 2^112; only infinity and NaN have an exponent of their
  // own.
  const uint32_t magnitude = (bits & 0x7fff) << 13;
  const uint32_t sign = (bits & 0x8000) << 16;
  const uint32_t special = magnitude >= 0x0f800000 ? 0x70000000u : 0;
  const float scaled = std::bit_cast<float>(magnitude | special) * 0x1p112f;
  return static_cast<double>(std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign));
}

inline double DoubleFromBfloat(uint32_t bits) {
  return static_cast<double>(std::bit_cast<float>(bits << 16));
}

inline double DoubleFromE4m3(uint32_t bits) {
  const uint32_t magnitude = bits & 0x7f;
  if (magnitude == 0x7f) return std::nan("");
  const double value =
      magnitude < 8
          ? static_cast<double>(magnitude) * 0x1p-9
          : static_cast<double>(8 + (magnitude & 7)) *
                std::bit_cast<double>(static_cast<uint64_t>((magnitude >> 3) + 1023 - 10) << 52);
  return (bits & 0x80) != 0 ? -value : value;
}

// The element in the low bits of `bits`. The low 13 bits of a tf32 are ignored.
template <MatrixType kType>
inline double DoubleFrom(uint32_t bits) {
  if constexpr (kType == kMatrixF16) return DoubleFromHalf(bits & 0xffff);
  if constexpr (kType == kMatrixBf16) return DoubleFromBfloat(bits & 0xffff);
  if constexpr (kType == kMatrixTf32)
    return static_cast<double>(std::bit_cast<float>(bits & 0xffffe000));
  if constexpr (kType == kMatrixE4m3) return DoubleFromE4m3(bits & 0xff);
  if constexpr (kType == kMatrixE5m2) return DoubleFromHalf((bits & 0xff) << 8);
  return static_cast<double>(std::bit_cast<float>(bits));
}

template <MatrixType kType>
inline int32_t IntFrom(uint32_t bits) {
  if constexpr (kType == kMatrixS8) return static_cast<int8_t>(bits);
  if constexpr (kType == kMatrixU8) return static_cast<uint8_t>(bits);
  if constexpr (kType == kMatrixS4) return static_cast<int32_t>(bits << 28) >> 28;
  return static_cast<int32_t>(bits & 15);
}

// Rounds to nearest even; every NaN becomes the device's.
inline uint32_t FloatBits(double value) {
  if (std::isnan(value)) return 0x7fffffff;
  return std::bit_cast<uint32_t>(static_cast<float>(value));
}

inline uint32_t HalfBits(double value) {
  return std::isnan(value) ? 0x7fff : HalfFromDouble(value);
}

inline double DoubleAt(const uint32_t* registers) {
  double value;
  std::memcpy(&value, registers, sizeof(value));
  return value;
}

}  // namespace rgpu::emu
