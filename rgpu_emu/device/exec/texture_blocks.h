// Block-compressed texels: 4 x 4 texels in 8 or 16 bytes. The formats are those of the Khronos Data
// Format specification (S3TC, RGTC and BPTC) and of Direct3D.
#pragma once

#include <cstdint>

#include "rgpu_emu/device/exec/texture.h"

namespace rgpu::emu {

// A texel of a block: 0 to 3 each.
struct BlockPlace {
  unsigned x;
  unsigned y;
};

// Decodes red, green, blue and alpha of one texel.
void ReadBlockTexel(TexelType type, const uint8_t* block, BlockPlace place, float* rgba);

}  // namespace rgpu::emu
