#include "rgpu_emu/device/exec/texture_texel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "rgpu_emu/device/exec/half_float.h"
#include "rgpu_emu/device/exec/texture_blocks.h"

namespace rgpu::emu {
namespace {

template <typename T>
T Load(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// An integer of a channel as a float in [0, 1] or [-1, 1].
template <typename T>
float Normalized(T value) {
  const float most = static_cast<float>(std::numeric_limits<T>::max());
  return std::max(static_cast<float>(value) / most, -1.0F);
}

template <typename T>
uint32_t Channel(const uint8_t* from, bool normalized) {
  const T value = Load<T>(from);
  return normalized ? Bits(Normalized(value)) : static_cast<uint32_t>(int64_t{value});
}

uint32_t ReadChannel(const TextureState& texture, const uint8_t* from) {
  switch (texture.type) {
    case TexelType::kU8:
      return Channel<uint8_t>(from, texture.normalized_float);
    case TexelType::kU16:
      return Channel<uint16_t>(from, texture.normalized_float);
    case TexelType::kS8:
      return Channel<int8_t>(from, texture.normalized_float);
    case TexelType::kS16:
      return Channel<int16_t>(from, texture.normalized_float);
    case TexelType::kF16:
      return Bits(FloatFromHalf(Load<uint16_t>(from)));
    default:
      return Load<uint32_t>(from);
  }
}

Texel ReadPacked(uint32_t bits) {
  Texel texel{};
  for (unsigned i = 0; i < 3; ++i)
    texel.words[i] = Bits(static_cast<float>(bits >> 10 * i & 1023) / 1023.0F);
  texel.words[3] = Bits(static_cast<float>(bits >> 30) / 3.0F);
  return texel;
}

uint32_t FromSrgb(uint32_t bits) {
  const double c = double{std::bit_cast<float>(bits)};
  const double linear = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  return Bits(static_cast<float>(linear));
}

unsigned ChannelBytes(const TextureState& texture) {
  return texture.texel_bytes / std::max<unsigned>(texture.channels, 1);
}

Texel ReadStored(const TextureState& texture, const TexelPlace& place) {
  const auto* from = reinterpret_cast<const uint8_t*>(TexelAddress(texture, place));
  if (texture.type == TexelType::kUnorm1010102) return ReadPacked(Load<uint32_t>(from));
  if (IsBlockCompressed(texture.type)) {
    float colour[4];
    ReadBlockTexel(texture.type, from, {place.x % 4, place.y % 4}, colour);
    return {{Bits(colour[0]), Bits(colour[1]), Bits(colour[2]), Bits(colour[3])}};
  }
  Texel texel{{0, 0, 0, ReadsFloats(texture) ? Bits(1.0F) : 1}};
  const unsigned bytes = ChannelBytes(texture);
  for (unsigned i = 0; i < texture.channels && i < 4; ++i)
    texel.words[i] = ReadChannel(texture, from + size_t{i} * bytes);
  return texel;
}

}  // namespace

bool ReadsFloats(const TextureState& texture) {
  switch (texture.type) {
    case TexelType::kU8:
    case TexelType::kU16:
    case TexelType::kS8:
    case TexelType::kS16:
      return texture.normalized_float;
    case TexelType::kU32:
    case TexelType::kS32:
      return false;
    default:
      return true;
  }
}

uint64_t TexelAddress(const TextureState& texture, const TexelPlace& place) {
  const TextureLevel& level = texture.levels[place.level];
  const unsigned block = IsBlockCompressed(texture.type) ? 4 : 1;
  return texture.base + level.offset + level.slice_pitch * (uint64_t{place.layer} + place.z) +
         level.row_pitch * (place.y / block) + uint64_t{texture.texel_bytes} * (place.x / block);
}

Texel ReadTexel(const TextureState& texture, const TexelPlace& place) {
  Texel texel = ReadStored(texture, place);
  if (texture.srgb) {
    for (unsigned i = 0; i < 3; ++i) texel.words[i] = FromSrgb(texel.words[i]);
  }
  return texel;
}

Texel BorderTexel(const TextureState& texture) {
  Texel texel{};
  if (texture.shape == TextureShape::kBuffer) return texel;
  for (unsigned i = 0; i < 4; ++i) texel.words[i] = Bits(texture.border[i]);
  return texel;
}

}  // namespace rgpu::emu
