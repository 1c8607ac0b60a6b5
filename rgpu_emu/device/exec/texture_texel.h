// One texel: where it lies in memory, and what a texture instruction reads from it.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/exec/texture.h"

namespace rgpu::emu {

// The place of a texel. It is inside the texture.
struct TexelPlace {
  uint32_t level;
  uint32_t layer;
  uint32_t x;
  uint32_t y;
  uint32_t z;
};

// Red, green, blue and alpha as the instruction returns them: the bits of floats, or integers.
struct Texel {
  uint32_t words[4];
};

// True if texels are read as floats; else as integers.
bool ReadsFloats(const TextureState& texture);

// Returns a texel. A channel that the texture lacks is 0, and alpha is 1.
Texel ReadTexel(const TextureState& texture, const TexelPlace& place);

// Returns what is read outside the texture with AddressMode::kBorder. For integer texels the border
// colour's floats are the bits of integers, as the runtime API's manual says.
Texel BorderTexel(const TextureState& texture);

// Returns the device address of a texel, or of the block in which a compressed texel lies.
uint64_t TexelAddress(const TextureState& texture, const TexelPlace& place);

}  // namespace rgpu::emu
