#include "rgpu_emu/device/exec/texture_blocks.h"

#include <algorithm>
#include <cstring>

namespace rgpu::emu {
namespace {

uint64_t Load64(const uint8_t* from) {
  uint64_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

unsigned Number(BlockPlace place) { return place.y * 4 + place.x; }

// A 16-bit colour: 5 bits red (highest), 6 green, 5 blue.
void Unpack565(uint32_t bits, double* rgb) {
  rgb[0] = (bits >> 11 & 31) / 31.0;
  rgb[1] = (bits >> 5 & 63) / 63.0;
  rgb[2] = (bits & 31) / 31.0;
}

// The colour half of BC1 to BC3. BC1 has a third way: half-way and transparent black.
void ReadColour(uint64_t block, BlockPlace place, bool may_be_transparent, float* rgba) {
  const auto first = static_cast<uint32_t>(block & 0xffff);
  const auto second = static_cast<uint32_t>(block >> 16 & 0xffff);
  const unsigned code = block >> (32 + 2 * Number(place)) & 3;
  double a[3];
  double b[3];
  Unpack565(first, a);
  Unpack565(second, b);
  const bool three = may_be_transparent && first <= second;
  constexpr double kFour[4] = {0, 1, 1.0 / 3, 2.0 / 3};
  constexpr double kThree[4] = {0, 1, 0.5, 0};
  const double of_b = three ? kThree[code] : kFour[code];
  const bool clear = three && code == 3;
  for (unsigned i = 0; i < 3; ++i)
    rgba[i] = clear ? 0 : static_cast<float>((1 - of_b) * a[i] + of_b * b[i]);
  rgba[3] = clear ? 0.0F : 1.0F;
}

// One channel of eight bytes: BC3's alpha, BC4 and BC5.
float ReadChannel(uint64_t block, BlockPlace place, bool is_signed) {
  const double most = is_signed ? 127 : 255;
  const auto end = [&](unsigned shift) {
    const auto bits = static_cast<uint8_t>(block >> shift & 0xff);
    return is_signed ? std::max<int>(static_cast<int8_t>(bits), -127) : int{bits};
  };
  const int first = end(0);
  const int second = end(8);
  const unsigned code = block >> (16 + 3 * Number(place)) & 7;
  const bool eight = first > second;
  if (!eight && code == 6) return is_signed ? -1.0F : 0.0F;
  if (!eight && code == 7) return 1.0F;
  const int steps = eight ? 7 : 5;
  const int of_second = code == 0 ? 0 : code == 1 ? steps : static_cast<int>(code) - 1;
  const double sum = static_cast<double>((steps - of_second) * first + of_second * second);
  return static_cast<float>(sum / steps / most);
}

}  // namespace

void ReadBlockTexel(TexelType type, const uint8_t* block, BlockPlace place, float* rgba) {
  std::fill(rgba, rgba + 3, 0.0F);
  rgba[3] = 1.0F;
  switch (type) {
    case TexelType::kBc1:
      return ReadColour(Load64(block), place, true, rgba);
    case TexelType::kBc2:
      ReadColour(Load64(block + 8), place, false, rgba);
      rgba[3] = static_cast<float>(Load64(block) >> (4 * Number(place)) & 15) / 15.0F;
      return;
    case TexelType::kBc3:
      ReadColour(Load64(block + 8), place, false, rgba);
      rgba[3] = ReadChannel(Load64(block), place, false);
      return;
    case TexelType::kBc4Unorm:
    case TexelType::kBc4Snorm:
      rgba[0] = ReadChannel(Load64(block), place, type == TexelType::kBc4Snorm);
      return;
    case TexelType::kBc5Unorm:
    case TexelType::kBc5Snorm:
      rgba[0] = ReadChannel(Load64(block), place, type == TexelType::kBc5Snorm);
      rgba[1] = ReadChannel(Load64(block + 8), place, type == TexelType::kBc5Snorm);
      return;
    default:
      return;
  }
}

}  // namespace rgpu::emu
