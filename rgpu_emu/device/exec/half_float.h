// Conversions to and from the 16-bit floating-point formats as bits, rounding to nearest even.
#pragma once

#include <cstdint>

namespace rgpu::emu {

uint16_t HalfFromDouble(double value);
uint16_t HalfFromFloat(float value);
float FloatFromHalf(uint16_t bits);
uint16_t BfloatFromDouble(double value);
uint16_t BfloatFromFloat(float value);

}  // namespace rgpu::emu
