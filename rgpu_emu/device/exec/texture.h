// Texture and surface objects as the sampler sees them, and the table in which kernels find them.
//
// The host part of the device fills in a TextureState and publishes it. Everything in it is checked
// then: with the bounds of `levels` and `layers`, every texel lies in [base, base + bytes), and
// that range is in the arena. The memory itself may be freed while the object lives. Then an access
// faults on an inaccessible page, which ends the kernel as any other fault does.
#pragma once

#include <cstdint>
#include <memory>

namespace rgpu::emu {

// How the texels lie in memory, and by which coordinates they are found.
enum class TextureShape : uint8_t {
  kBuffer,  // linear memory, by element number only
  k1D,
  k1DLayered,
  k2D,
  k2DLayered,
  k3D,
  kCubemap,         // six faces, each like a layer: layers == 6
  kCubemapLayered,  // face f of cube c is layer 6 * c + f
};

// One channel of a texel in memory; from kUnorm1010102 on, the whole texel.
enum class TexelType : uint8_t {
  kU8,
  kU16,
  kU32,
  kS8,
  kS16,
  kS32,
  kF16,
  kF32,
  kUnorm1010102,  // 10 bits red (lowest), green, blue, 2 bits alpha
  kBc1,           // blocks of 4 x 4 texels
  kBc2,
  kBc3,
  kBc4Unorm,
  kBc4Snorm,
  kBc5Unorm,
  kBc5Snorm,
  kBc6hUnsigned,
  kBc6hSigned,
  kBc7,
};

inline bool IsBlockCompressed(TexelType type) { return type >= TexelType::kBc1; }

// What is read outside the texture. The values are those of CUaddress_mode.
enum class AddressMode : uint8_t { kWrap = 0, kClamp = 1, kMirror = 2, kBorder = 3 };

// One mipmap level. Sizes are in texels, pitches and offsets in bytes.
struct TextureLevel {
  uint64_t offset;     // from TextureState::base to layer 0
  uint64_t row_pitch;  // from row to row; of compressed texels, from row of blocks to row of blocks
  uint64_t slice_pitch;  // from slice to slice of a 3D texture, or from layer to layer
  uint32_t width;
  uint32_t height;  // 1 for one dimension
  uint32_t depth;   // 1 unless the shape is k3D
};

// Enough for 131,072 texels, the greatest extent.
inline constexpr uint32_t kMaxTextureLevels = 18;

struct TextureState {
  uint64_t object = 0;  // the value that kernels have; set by PublishTexture
  // The memory, in the arena. A view of an array (CUDA_RESOURCE_VIEW_DESC) is applied already: the
  // first level and the first layer here are the first of the view, the type is the view's type.
  uint64_t base = 0;
  uint64_t bytes = 0;
  TextureShape shape = TextureShape::k1D;
  TexelType type = TexelType::kU8;
  uint8_t channels = 1;      // 1, 2 or 4 in memory; 3 for kBc6h
  uint8_t texel_bytes = 1;   // bytes of a texel, or of a compressed block
  uint32_t level_count = 1;  // 1 to kMaxTextureLevels
  uint32_t layers = 1;       // layers, or faces of all cubes; 1 for other shapes
  TextureLevel levels[kMaxTextureLevels] = {};

  // A surface is read and written by sust, suld and sured, only at level 0. The rest of the fields
  // is for textures.
  bool surface = false;
  // Integers of 8 and 16 bits are read as floats in [0, 1] or [-1, 1]. Always set for unorm and
  // snorm types, false for kF16, kF32, kU32 and kS32, which are read as they are.
  bool normalized_float = false;
  bool normalized_coordinates = false;
  bool srgb = false;                   // red, green and blue are converted from sRGB to linear
  bool linear_filter = false;          // else the nearest texel
  bool linear_mip_filter = false;      // else the nearest level
  bool seamless_cubemap = false;       // a filter at the edge of a face reads the next face
  bool trilinear_optimization = true;  // it may be ignored
  AddressMode address[3] = {};         // with coordinates that are not normalized: clamp or border
  float border[4] = {};                // for AddressMode::kBorder, as floats
  float level_bias = 0;                // of the level that is computed or given
  float min_level = 0;                 // bounds of the level, relative to levels[0]
  float max_level = 0;
  uint32_t max_anisotropy = 0;  // 0 and 1: isotropic
};

// Makes the state findable and returns its object: never 0, and never a value that the table has
// had before. Returns 0 if the table is full (kMaxTextures).
inline constexpr uint32_t kMaxTextures = 1U << 20;
uint64_t PublishTexture(std::unique_ptr<TextureState> state);

// FindTexture no longer finds the object. Returns its state, which kernels that have found it may
// still use: the caller keeps it until they have ended. Null: there is no such object.
std::unique_ptr<TextureState> WithdrawTexture(uint64_t object);

// Returns the state of any 64-bit value that a kernel has; null if it is no object. It takes no
// lock. The state stays valid as long as the calling kernel runs.
const TextureState* FindTexture(uint64_t object);

}  // namespace rgpu::emu
