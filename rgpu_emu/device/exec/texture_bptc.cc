// BC7 and BC6H, as the Khronos Data Format specification defines them under the name BPTC.
#include <algorithm>
#include <cstring>

#include "rgpu_emu/device/exec/half_float.h"
#include "rgpu_emu/device/exec/texture_blocks.h"
#include "rgpu_emu/device/exec/texture_bptc_tables.h"

namespace rgpu::emu {
namespace {

// Takes bits from a block of 128, the lowest first.
class Bits {
 public:
  explicit Bits(const uint8_t* block) { std::memcpy(words_, block, sizeof(words_)); }

  uint32_t Take(unsigned count) {
    uint32_t value = 0;
    for (unsigned i = 0; i < count; ++i) value |= Bit() << i;
    return value;
  }

 private:
  uint32_t Bit() {
    const unsigned at = at_++;
    return at < 128 ? static_cast<uint32_t>(words_[at / 64] >> at % 64 & 1) : 0;
  }

  uint64_t words_[2];
  unsigned at_ = 0;
};

unsigned SubsetOf(unsigned subsets, uint32_t partition, unsigned texel) {
  if (subsets == 2) return kTwoSubsets[partition % 64] >> texel & 1;
  return subsets == 3 ? kThreeSubsets[partition % 64] >> 2 * texel & 3 : 0;
}

bool IsAnchor(unsigned subsets, uint32_t partition, unsigned texel) {
  if (texel == 0) return true;
  if (subsets == 2) return texel == kAnchorOfTwo[partition % 64];
  return subsets == 3 && (texel == kSecondAnchorOfThree[partition % 64] ||
                          texel == kThirdAnchorOfThree[partition % 64]);
}

// Reads the index of one texel, and leaves `bits` behind those of all texels.
uint32_t TakeIndex(Bits* bits, unsigned width, unsigned subsets, uint32_t partition,
                   unsigned texel) {
  uint32_t found = 0;
  for (unsigned i = 0; i < 16; ++i) {
    const uint32_t index = bits->Take(width - (IsAnchor(subsets, partition, i) ? 1 : 0));
    if (i == texel) found = index;
  }
  return found;
}

int Weight(unsigned width, uint32_t index) {
  if (width == 2) return kWeights2[index % 4];
  return width == 3 ? kWeights3[index % 8] : kWeights4[index % 16];
}

int Between(int first, int second, int weight) {
  return ((64 - weight) * first + weight * second + 32) >> 6;
}

// The ends of the subsets of a BC7 block: end 2 * s and 2 * s + 1 belong to subset s.
struct Bc7Ends {
  int value[6][4];
};

Bc7Ends TakeEnds(Bits* bits, const Bc7Mode& mode) {
  const unsigned ends = 2U * mode.subsets;
  uint32_t value[6][4] = {};
  for (unsigned channel = 0; channel < 4; ++channel) {
    const unsigned width = channel < 3 ? mode.colour_bits : mode.alpha_bits;
    for (unsigned end = 0; end < ends; ++end) value[end][channel] = bits->Take(width);
  }
  uint32_t extra[6] = {};
  for (unsigned end = 0; end < ends; ++end) {
    if (mode.end_bits != 0) extra[end] = bits->Take(1);
    if (mode.shared_bits != 0) extra[end] = end % 2 == 0 ? bits->Take(1) : extra[end - 1];
  }
  const unsigned more = mode.end_bits + mode.shared_bits;
  Bc7Ends found{};
  for (unsigned end = 0; end < ends; ++end) {
    for (unsigned channel = 0; channel < 4; ++channel) {
      unsigned width = channel < 3 ? mode.colour_bits : mode.alpha_bits;
      if (width == 0) {
        found.value[end][channel] = 255;
        continue;
      }
      const uint32_t bits_of =
          more != 0 ? value[end][channel] << 1 | extra[end] : value[end][channel];
      width += more;
      found.value[end][channel] =
          static_cast<int>(bits_of << (8 - width) | bits_of >> (2 * width - 8));
    }
  }
  return found;
}

void ReadBc7(const uint8_t* block, unsigned texel, float* rgba) {
  Bits bits(block);
  unsigned number = 0;
  while (number < 8 && bits.Take(1) == 0) ++number;
  std::fill(rgba, rgba + 4, 0.0F);
  if (number == 8) return;  // a reserved mode is transparent black
  const Bc7Mode& mode = kBc7Modes[number];
  const uint32_t partition = bits.Take(mode.partition_bits);
  const uint32_t rotation = bits.Take(mode.rotation_bits);
  const bool swapped = bits.Take(mode.selection_bits) != 0;
  const Bc7Ends ends = TakeEnds(&bits, mode);
  const unsigned subset = SubsetOf(mode.subsets, partition, texel);
  unsigned width = mode.index_bits;
  uint32_t index = TakeIndex(&bits, width, mode.subsets, partition, texel);
  unsigned alpha_width = width;
  uint32_t alpha_index = index;
  if (mode.second_index_bits != 0) {
    alpha_width = mode.second_index_bits;
    alpha_index = TakeIndex(&bits, alpha_width, 1, 0, texel);
  }
  if (swapped) {
    std::swap(width, alpha_width);
    std::swap(index, alpha_index);
  }
  int colour[4];
  for (unsigned i = 0; i < 4; ++i) {
    const int weight = i < 3 ? Weight(width, index) : Weight(alpha_width, alpha_index);
    colour[i] = Between(ends.value[2 * subset][i], ends.value[2 * subset + 1][i], weight);
  }
  if (rotation != 0) std::swap(colour[3], colour[rotation - 1]);
  for (unsigned i = 0; i < 4; ++i) rgba[i] = static_cast<float>(colour[i]) / 255.0F;
}

int SignExtended(uint32_t value, unsigned width) {
  const uint32_t sign = 1U << (width - 1);
  return static_cast<int>((value & ((sign << 1) - 1)) ^ sign) - static_cast<int>(sign);
}

const Bc6Mode* FindMode(Bits* bits) {
  uint32_t code = bits->Take(2);
  if (code > 1) code |= bits->Take(3) << 2;
  for (const Bc6Mode& mode : kBc6Modes) {
    if (mode.code == code) return &mode;
  }
  return nullptr;
}

// Reads the ends as [end][channel] by the layout's words.
void TakeLayout(Bits* bits, const char* at, uint32_t ends[4][3]) {
  const auto number = [&at] {
    int value = 0;
    while (*at >= '0' && *at <= '9') value = value * 10 + (*at++ - '0');
    return value;
  };
  while (*at != '\0') {
    const unsigned channel = *at == 'r' ? 0 : *at == 'g' ? 1 : 2;
    ++at;
    uint32_t* end = &ends[number()][channel];
    ++at;  // .
    const int high = number();
    int low = high;
    if (*at == ':') {
      ++at;
      low = number();
    }
    const int step = high >= low ? 1 : -1;
    for (int bit = low;; bit += step) {
      *end |= bits->Take(1) << bit;
      if (bit == high) break;
    }
    if (*at == ' ') ++at;
  }
}

int Unquantized(int value, unsigned width, bool is_signed) {
  if (!is_signed) {
    if (width >= 15 || value == 0) return value;
    return value == (1 << width) - 1 ? 0xFFFF : ((value << 15) + 0x4000) >> (width - 1);
  }
  if (width >= 16 || value == 0) return value;
  const int size = value < 0 ? -value : value;
  const int wide = size >= (1 << (width - 1)) - 1 ? 0x7FFF : ((size << 15) + 0x4000) >> (width - 1);
  return value < 0 ? -wide : wide;
}

// The bits of a half from an interpolated value.
uint16_t HalfBits(int value, bool is_signed) {
  if (!is_signed) return static_cast<uint16_t>(value * 31 >> 6);
  const int size = (value < 0 ? -value : value) * 31 >> 5;
  return static_cast<uint16_t>(size | (value < 0 ? 0x8000 : 0));
}

void ReadBc6h(const uint8_t* block, unsigned texel, bool is_signed, float* rgba) {
  Bits bits(block);
  rgba[3] = 1.0F;
  std::fill(rgba, rgba + 3, 0.0F);
  const Bc6Mode* mode = FindMode(&bits);
  if (mode == nullptr) return;  // a reserved mode is black
  uint32_t raw[4][3] = {};
  TakeLayout(&bits, mode->layout, raw);
  const unsigned subsets = mode->two ? 2 : 1;
  const uint32_t partition = mode->two ? bits.Take(5) : 0;
  const unsigned width = mode->two ? 3 : 4;
  const uint32_t index = TakeIndex(&bits, width, subsets, partition, texel);
  const unsigned subset = SubsetOf(subsets, partition, texel);
  const bool differences = mode->code != 3 && mode->code != 30;
  const unsigned whole = mode->bits[0];
  for (unsigned channel = 0; channel < 3; ++channel) {
    int ends[2];
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned end = 2 * subset + e;
      uint32_t value = raw[end][channel];
      if (differences && end != 0) {
        value =
            raw[0][channel] + static_cast<uint32_t>(SignExtended(value, mode->bits[channel + 1]));
      }
      value &= (1U << whole) - 1;
      const int number = is_signed ? SignExtended(value, whole) : static_cast<int>(value);
      ends[e] = Unquantized(number, whole, is_signed);
    }
    const int value = Between(ends[0], ends[1], Weight(width, index));
    rgba[channel] = FloatFromHalf(HalfBits(value, is_signed));
  }
}

}  // namespace

void ReadBptcTexel(TexelType type, const uint8_t* block, BlockPlace place, float* rgba) {
  const unsigned texel = place.y * 4 + place.x;
  if (type == TexelType::kBc7) return ReadBc7(block, texel, rgba);
  ReadBc6h(block, texel, type == TexelType::kBc6hSigned, rgba);
}

}  // namespace rgpu::emu
